//! Laws that relate the results of several launches, for kernels with and without a reference.

use super::arrays::array::Difference;
use super::arrays::element::Tolerance;
use super::draw::Case;
use super::failure::{Failure, Kind};
use super::instance::{LaunchMode, Outputs, Prepared, Subject, name_of, prepare};
use super::random::Random;
use crate::backend::cpu::{BlockOrder, Checks};
use crate::runtime::Device;
use crate::util::collect::CollectVec as _;

/// A relation between results of a kernel.
#[derive(Clone, Debug)]
pub(super) enum Law {
    /// Results for the two parts of an extent are the parts of the result.
    Splits(String),
    /// The result is linear in an array.
    Linear(usize),
    /// The result is the same for another option of a draw.
    Independent(String),
}

/// A law without a value for this case, or a failure.
type Checked = Result<(), Failure>;

impl Law {
    /// Returns the failure of a case whose results violate the law.
    pub fn violation(
        &self,
        subject: &dyn Subject,
        prepared: &Prepared<'_>,
        case: &Case,
        tolerance: Option<Tolerance>,
    ) -> Option<Failure> {
        let checked = match self {
            Law::Splits(extent) => splits(extent, subject, prepared, case, tolerance),
            Law::Linear(array) => linear(*array, prepared, case, tolerance),
            Law::Independent(name) => independent(name, subject, prepared, case, tolerance),
        };
        checked.err()
    }

    /// Returns the name of the law in reports.
    fn text(&self) -> String {
        match self {
            Law::Splits(extent) => format!("splits_along({extent:?})"),
            Law::Linear(array) => format!("linear_in({array})"),
            Law::Independent(name) => format!("independent_of({name:?})"),
        }
    }

    fn failure(&self, message: &str) -> Failure {
        Failure { kind: Kind::Law, message: format!("law `{}`: {message}", self.text()), place: None, is_final: false }
    }

    fn violated(&self, (number, difference): (usize, Difference)) -> Failure {
        self.failure(&format!("array `{}`: {}", name_of(number), difference.message))
    }

    fn execute(&self, prepared: &Prepared<'_>) -> Result<Outputs, Failure> {
        let way = LaunchMode { device: Device::cpu(), checks: Checks::none(), order: BlockOrder::Grid, variant: 0 };
        prepared.execute(way).map_err(|failure| self.failure(&failure.message))
    }
}

/// Compares the result with those of the two parts of an extent.
fn splits(
    extent: &str,
    subject: &dyn Subject,
    whole: &Prepared<'_>,
    case: &Case,
    tolerance: Option<Tolerance>,
) -> Checked {
    let law = Law::Splits(extent.to_owned());
    let Some(drawn) = whole.drawn.iter().find(|drawn| drawn.name == extent) else {
        return Err(law.failure("no draw has this name"));
    };
    let total = drawn.value;
    if total < 2 {
        return Ok(());
    }
    let outputs = law.execute(whole)?;
    let cut = 1 + Random::named(case.seed, "cut").below(total - 1);
    for (first, count) in [(0, cut), (cut, total - cut)] {
        let mut forced = case.forced.clone();
        forced.insert(extent.to_owned(), count);
        let part = prepare(subject, &Case { seed: case.seed, forced, ..Case::default() });
        if part.is_rejected {
            return Ok(());
        }
        let mut problem = None;
        let mut wanted = Outputs::new();
        part.for_each_array(|number, array| {
            let of_whole = whole.with_array(number, |array| (array.shape(), array.bits()));
            let Some((shape, bits)) = of_whole else { return };
            let Some(selected) = selection(&shape, &array.shape(), (first, count, total)) else {
                problem = Some(format!("the shape of array `{}` is not proportional to the extent", name_of(number)));
                return;
            };
            let take = |bits: &[u64]| selected.iter().map(|&at| bits[at]).collect_vec();
            array.set_bits(&take(&bits));
            // A result of the same shape belongs to the whole extent, and is not compared.
            if shape != array.shape()
                && let Some((_, bits)) = outputs.iter().find(|(of, _)| *of == number)
            {
                wanted.push((number, take(bits)));
            }
        });
        if let Some(problem) = problem {
            return Err(law.failure(&problem));
        }
        let mut got = law.execute(&part)?;
        got.retain(|(number, _)| wanted.iter().any(|(of, _)| of == number));
        if let Some(place) = part.difference_of(&got, &wanted, tolerance) {
            let failure = law.violated(place);
            let message =
                format!("{}, alone and in {extent} = {total}, for {extent} = {count} from {first} on", failure.message);
            return Err(Failure { message, ..failure });
        }
    }
    Ok(())
}

/// Returns the row-major numbers of the elements of a whole array that a part has; `None` if the
/// extents are not proportional.
fn selection(whole: &[usize], part: &[usize], (first, count, total): (usize, usize, usize)) -> Option<Vec<usize>> {
    if whole.len() != part.len() {
        return None;
    }
    let mut offsets = Vec::new();
    for (&whole, &part) in whole.iter().zip(part) {
        if whole != part && whole * count != part * total {
            return None;
        }
        offsets.push(if whole == part { 0 } else { first * whole / total });
    }
    let element = |mut flat: usize| {
        let mut index = vec![0; part.len()];
        for d in (0..part.len()).rev() {
            (index[d], flat) = (flat % part[d] + offsets[d], flat / part[d]);
        }
        index.iter().zip(whole).fold(0, |flat, (&i, &extent)| flat * extent + i)
    };
    Some((0..part.iter().product()).map(element).collect_vec())
}

/// Compares the result for `2 x - y` with that of `x` and `y`.
fn linear(array: usize, prepared: &Prepared<'_>, case: &Case, tolerance: Option<Tolerance>) -> Checked {
    let law = Law::Linear(array);
    let mut before = Vec::new();
    let mut random = Random::named(case.seed, "linear");
    prepared.for_each_array(|number, array| {
        before.push((number, array.bits()));
        let numbers = array.numbers(Random::new(random.word()));
        array.set_bits(&numbers);
    });
    let Some((x, y, sum)) = prepared.with_array(array, |array| {
        let (x, y) = (array.bits(), array.numbers(Random::new(random.word())));
        let sum = array.combined(&x, &y, [2.0, -1.0]);
        (x, y, sum)
    }) else {
        return Err(law.failure("no array has this number"));
    };
    let result_of = |bits: &[u64]| {
        prepared.with_array(array, |array| array.set_bits(bits));
        law.execute(prepared)
    };
    let (of_x, of_y, of_sum) = (result_of(&x)?, result_of(&y)?, result_of(&sum)?);
    let combined = of_x.iter().zip(&of_y).filter_map(|((number, x), (_, y))| {
        Some((*number, prepared.with_array(*number, |array| array.combined(x, y, [2.0, -1.0]))?))
    });
    let difference = prepared.difference_of(&of_sum, &combined.collect_vec(), tolerance);
    for (number, bits) in before {
        prepared.with_array(number, |array| array.set_bits(&bits));
    }
    difference.map_or(Ok(()), |place| Err(law.violated(place)))
}

/// Compares the result with that for another option of a draw.
fn independent(
    name: &str,
    subject: &dyn Subject,
    prepared: &Prepared<'_>,
    case: &Case,
    tolerance: Option<Tolerance>,
) -> Checked {
    let law = Law::Independent(name.to_owned());
    let Some(drawn) = prepared.drawn.iter().find(|drawn| drawn.name == name) else {
        return Err(law.failure("no draw has this name"));
    };
    let mut forced = case.forced.clone();
    forced.insert(name.to_owned(), if drawn.value == 0 { 1 } else { 0 });
    let other = prepare(subject, &Case { seed: case.seed, forced, ..Case::default() });
    let shown = other.drawn.iter().find(|drawn| drawn.name == name).map(|drawn| drawn.shown.clone());
    let mut has_same_shapes = true;
    other.for_each_array(|number, array| {
        let of_first = prepared.with_array(number, |array| (array.shape(), array.bits()));
        match of_first {
            Some((shape, bits)) if shape == array.shape() => array.set_bits(&bits),
            _ => has_same_shapes = false,
        }
    });
    if other.is_rejected || !has_same_shapes {
        return Ok(());
    }
    let (got, want) = (law.execute(&other)?, law.execute(prepared)?);
    let Some(place) = other.difference_of(&got, &want, tolerance) else { return Ok(()) };
    let failure = law.violated(place);
    let options = format!("for {name} = {} and {name} = {}", shown.unwrap_or_default(), drawn.shown);
    Err(Failure { message: format!("{}, {options}", failure.message), ..failure })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_select_their_elements() {
        assert_eq!(selection(&[4, 2], &[3, 2], (1, 3, 4)), Some(vec![2, 3, 4, 5, 6, 7]));
        assert_eq!(selection(&[2, 8], &[2, 2], (3, 1, 4)), Some(vec![6, 7, 14, 15]));
        assert_eq!(selection(&[3], &[3], (1, 3, 4)), Some(vec![0, 1, 2]));
        assert_eq!(selection(&[5], &[3], (1, 3, 4)), None);
    }
}

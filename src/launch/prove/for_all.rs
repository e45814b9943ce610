//! Proofs for all values of the symbols of a launch.

use super::{Proof, Scene, argument_names};
use crate::error::{Error, Result};
use crate::ir::Module;
use crate::kernel::{Arguments, Bound, Call, Kernel, KernelArgs};
use crate::pass::{self, Argument, Property, Symbol, SymbolicLaunch, Verdict};
use crate::util::collect::CollectVec as _;

/// Number of launches that are searched for a counter-example.
const SAMPLES: usize = 32;

/// Number of launches that are tried for those, if the kernel has conditions.
const TRIES: usize = 2000;

/// Extents at which mistakes are likely: powers of two, and their neighbours.
const EXTENTS: [i64; 20] = [0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 65, 100, 127, 129, 255, 257, 300, 1000];

/// Further extents of kernels with conditions.
const MULTIPLES: [i64; 8] = [4, 48, 96, 128, 256, 512, 768, 1024];

/// Largest extent of a search with several symbols.
const LARGEST: i64 = 300;

/// Decides properties of a kernel for all values of the [symbols](Symbol) of its launch: extents of
/// arrays ([`ArraySpec::symbolic`](crate::ArraySpec::symbolic)), and a grid that depends on them.
///
/// `Proved` holds for all values that satisfy the conditions of [`require!`](crate::require!).
/// `Refuted` has a counter-example with concrete numbers. Strides that depend on symbols are not
/// decided for accesses by pointers.
///
/// A product of indices is one of integers only if it does not wrap. The ranges of the symbols, or
/// a condition of the kernel, have to exclude that.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn vadd(a: Array<f32, 1>, b: Array<f32, 1>, c: ArrayMut<f32, 1>) {
///     let i = ct::bid(0);
///     c.store(i, a.load(i, [256]) + b.load(i, [256]));
/// }
///
/// let n = ct::Symbol::new("n", 1..=1 << 30);
/// let x = ct::ArraySpec::<f32, 1>::symbolic([n]);
/// ct::prove_for_all(vadd, [n.div_ceil(256)], (x, x, x.mutable()), ct::Property::ALL)?.require()?;
///
/// // One tile block too many, for extents that are multiples of the tile.
/// let blocks = (n + 256).div_ceil(256);
/// let proof = ct::prove_for_all(vadd, [blocks], (x, x, x.mutable()), [ct::Property::Bounds])?;
/// assert!(proof.to_string().contains("for n = "), "{proof}");
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// * [`Error::Kernel`] with all errors of the kernel;
/// * [`Error::Argument`] for a grid of no or more than three axes, and if no values satisfy the
///   conditions of the kernel.
///
/// # Panics
/// If the kernel panics during tracing.
#[track_caller]
pub fn prove_for_all<K, A, P>(
    kernel: K,
    grid: impl AsRef<[Symbol]>,
    args: A,
    properties: impl IntoIterator<Item = Property>,
) -> Result<Proof>
where
    K: Kernel<P>,
    A: KernelArgs<P>,
{
    let properties: Vec<Property> = properties.into_iter().collect_vec();
    decide(&Bound::new(&kernel, &Arguments::new(args)).call(), grid.as_ref(), &properties)
}

#[track_caller]
fn decide(call: &Call<'_>, axes: &[Symbol], properties: &[Property]) -> Result<Proof> {
    if !(1..=3).contains(&axes.len()) {
        return Err(Error::argument(format!("a grid of {} axes: it has one to three", axes.len())));
    }
    let mut grid = [Symbol::from(1); 3];
    grid[..axes.len()].copy_from_slice(axes);
    let name = call.name();
    let module = call.trace(&name)?;
    let mut words = Vec::new();
    call.args().pack(&mut |word| words.push((word, Symbol::packed())));
    let launch = SymbolicLaunch { grid, words };
    let names = argument_names(call).into_iter();
    let arguments: Vec<Argument> = names.map(|name| Argument { name, bytes: None }).collect_vec();
    let verdicts = pass::prove_for_all(&module, &module.entries[0], &launch, properties);
    let mut verdicts = verdicts.ok_or_else(|| {
        Error::argument(format!("no launch with {} meets the conditions of `{name}`", scene_text(&launch)))
    })?;
    for (property, verdict) in &mut verdicts {
        if *verdict != Verdict::Proved
            && let Some(found) = counterexample(&module, &launch, &arguments, *property)
        {
            *verdict = found;
        }
    }
    let mut text = scene_text(&launch);
    if !module.required.is_empty() {
        text += " that meet the conditions of the kernel";
    }
    let scene = Scene::new(&module, text);
    Ok(Proof::new(name, verdicts, scene))
}

/// Returns the open symbols of a launch.
fn open(launch: &SymbolicLaunch) -> Vec<Symbol> {
    let mut all = Vec::new();
    launch.grid.iter().chain(launch.words.iter().filter_map(|(_, symbol)| symbol.as_ref())).for_each(|symbol| {
        symbol.open(&mut all);
    });
    all
}

fn scene_text(launch: &SymbolicLaunch) -> String {
    let [x, y, z] = launch.grid;
    let range = |symbol: Symbol| format!("{symbol} in {}..={}", symbol.range().0, symbol.range().1);
    let ranges: Vec<String> = open(launch).into_iter().map(range).collect_vec();
    format!("grid ({x}, {y}, {z}) for all {}", ranges.join(", "))
}

/// Searches launches with small extents for one that refutes a property.
fn counterexample(
    module: &Module,
    launch: &SymbolicLaunch,
    arguments: &[Argument],
    property: Property,
) -> Option<Verdict> {
    let symbols = open(launch);
    let has_conditions = !module.required.is_empty();
    let most = match (has_conditions, symbols.len()) {
        (true, _) => 1024,
        (_, 0 | 1) => *EXTENTS.last().expect("extents"),
        _ => LARGEST,
    };
    let extents = || EXTENTS.into_iter().chain(MULTIPLES.into_iter().filter(|_| has_conditions));
    let mut state = 1u64;
    let mut samples = 0;
    (0..if has_conditions { TRIES } else { SAMPLES }).find_map(|sample| {
        if samples == SAMPLES {
            return None;
        }
        let mut value = |symbol: Symbol| {
            let (lo, hi) = symbol.range();
            let fits: Vec<i64> = extents().filter(|n| (lo..=hi.min(most)).contains(n)).collect_vec();
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // The first samples have equal extents.
            let place = if sample < extents().count() { sample } else { (state >> 33) as usize };
            if fits.is_empty() { lo } else { fits[place % fits.len()] }
        };
        let values: Vec<(Symbol, i64)> = symbols.iter().map(|&symbol| (symbol, value(symbol))).collect_vec();
        let of = |symbol: Symbol| values.iter().find(|(other, _)| *other == symbol).map_or(0, |&(_, value)| value);
        let (grid, words) = concrete(launch, &of)?;
        if has_conditions && pass::satisfies_conditions(module, grid, &words) != Some(true) {
            return None;
        }
        samples += 1;
        let entry = &module.entries[0];
        let verdicts = pass::prove(module, entry, grid, (&words, arguments), &[property]);
        let Some((_, Verdict::Refuted(mut case))) = verdicts.into_iter().next() else { return None };
        let shown: Vec<String> = values.iter().map(|(symbol, value)| format!("{symbol} = {value}")).collect_vec();
        let [x, y, z] = grid;
        case.diagnostic = case.diagnostic.note(format!("for {}, with grid ({x}, {y}, {z})", shown.join(", ")));
        Some(Verdict::Refuted(case))
    })
}

/// Returns the grid and the words for values of the symbols, `None` for a launch of no tile blocks.
fn concrete(launch: &SymbolicLaunch, of: &dyn Fn(Symbol) -> i64) -> Option<([u32; 3], Vec<u64>)> {
    let mut grid = [0; 3];
    for (blocks, symbol) in grid.iter_mut().zip(launch.grid) {
        *blocks = u32::try_from(symbol.value(of)?).ok().filter(|&n| n > 0)?;
    }
    let word = |&(word, symbol): &(u64, Option<Symbol>)| match symbol {
        Some(symbol) => u64::try_from(symbol.value(of)?).ok(),
        None => Some(word),
    };
    Some((grid, launch.words.iter().map(word).collect::<Option<Vec<u64>>>()?))
}

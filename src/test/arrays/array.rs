//! An array of a case: its contents, its memory and its reference.

use super::arrangement::{ARRANGEMENTS, Arrangement, CONTIGUOUS};
use super::element::{TestElement, Tolerance, allowed, is_near, path, poison, text};
use super::host::{HostArray, indices};
use super::values::{CONTENTS, Values};
use crate::element::Element;
use crate::error::Result;
use crate::runtime::{Device, DeviceArray, DeviceView, DeviceViewMut};
use crate::test::random::Random;
use crate::util::collect::CollectVec as _;

/// Use of an array by a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::test) enum Role {
    Read,
    Write,
    Update,
}

/// An array of a case.
pub(in crate::test) struct TestArray<T: TestElement, const R: usize> {
    pub role: Role,
    pub shape: [usize; R],
    pub values: Values,
    pub is_contiguous: bool,
    pub is_checked: bool,
    arrangement: Arrangement<R>,
    initial: Vec<T>,
    variant: usize,
    outer: Option<DeviceArray<T, R>>,
    expected: Option<HostArray<T, R>>,
}

/// The array of a case on the device, with its arrangement.
pub struct OnDevice<T: TestElement, const R: usize> {
    outer: DeviceArray<T, R>,
    arrangement: Arrangement<R>,
}

impl<T: TestElement, const R: usize> OnDevice<T, R> {
    /// Returns a view of the array.
    pub fn view(&self) -> DeviceView<'_, T, R> {
        self.arrangement.view(&self.outer).expect("the arrangement is a view of the allocation")
    }

    /// Returns a unique view of the array.
    pub fn view_mut(&mut self) -> DeviceViewMut<'_, T, R> {
        self.arrangement.view_mut(&mut self.outer).expect("the arrangement is a view of the allocation")
    }
}

impl<T: TestElement, const R: usize> TestArray<T, R> {
    pub fn new(role: Role, shape: [usize; R]) -> TestArray<T, R> {
        TestArray {
            role,
            shape,
            values: Values::specials(),
            is_contiguous: false,
            is_checked: role != Role::Read,
            arrangement: Arrangement::new(0, shape),
            initial: Vec::new(),
            variant: 0,
            outer: None,
            expected: None,
        }
    }

    /// Runs `body` with a view of the array on the device.
    pub fn with_view<X>(&self, body: impl FnOnce(&DeviceView<'_, T, R>) -> X) -> X {
        let outer = self.outer.as_ref().expect("an array is allocated before a launch");
        body(&self.arrangement.view(outer).expect("the arrangement is a view of the allocation"))
    }

    /// Runs `body` with a unique view of the array on the device.
    pub fn with_view_mut<X>(&mut self, body: impl FnOnce(&mut DeviceViewMut<'_, T, R>) -> X) -> X {
        let outer = self.outer.as_mut().expect("an array is allocated before a launch");
        body(&mut self.arrangement.view_mut(outer).expect("the arrangement is a view of the allocation"))
    }

    /// Moves the array on the device out.
    pub fn take_device(&mut self) -> OnDevice<T, R> {
        let outer = self.outer.take().expect("an array is allocated before a launch");
        OnDevice { outer, arrangement: self.arrangement }
    }

    /// Moves the array on the device back.
    pub fn put_device(&mut self, device: OnDevice<T, R>) {
        self.outer = Some(device.outer);
    }

    /// Moves the array of the reference out.
    pub fn take_expected(&mut self) -> HostArray<T, R> {
        let values = match self.role {
            Role::Write => vec![T::Wide::default(); self.initial.len()],
            _ => self.initial.iter().map(|&x| x.widen()).collect_vec(),
        };
        HostArray::new(self.shape, values)
    }

    /// Stores the array that the reference wrote.
    pub fn put_expected(&mut self, expected: HostArray<T, R>) {
        self.expected = Some(expected);
    }

    fn name_of(&self, flat: usize) -> String {
        format!("element {:?}", indices(flat, &self.shape))
    }
}

/// An array of a case with erased types.
pub(in crate::test) trait AnyArray {
    /// Returns what the kernel does with the array.
    fn role(&self) -> Role;
    /// Returns the extents.
    fn shape(&self) -> Vec<usize>;
    /// Returns true if its values are compared.
    fn is_checked(&self) -> bool;
    /// Returns the number of arrangements and of contents to draw from.
    fn choices(&self) -> (usize, usize);
    /// Sets arrangement and contents.
    fn set_up(&mut self, arrangement: usize, content: usize, random: Random);
    /// Returns the contents before a launch, as bits.
    fn bits(&self) -> Vec<u64>;
    /// Replaces the contents before a launch.
    fn set_bits(&mut self, bits: &[u64]);
    /// Returns other contents: finite numbers.
    fn numbers(&self, random: Random) -> Vec<u64>;
    /// Returns the bits by which a reduction replaces elements, the simplest ones first.
    fn simple_bits(&self) -> [u64; 2];
    /// Allocates the array on a device, with padding of a variant of the poison.
    fn upload(&mut self, device: Device, variant: usize) -> Result<()>;
    /// Frees the memory on the device.
    fn free(&mut self);
    /// Returns the elements after a launch as bits, and a sentence if padding was written.
    fn download(&mut self) -> Result<(Vec<u64>, Option<String>)>;
    /// Returns the difference of these elements from the reference.
    fn difference(&self, got: &[u64], tolerance: Option<Tolerance>) -> Option<Difference>;
    /// Returns the difference of these elements from those of another launch.
    fn difference_of(&self, got: &[u64], want: &[u64], tolerance: Option<Tolerance>) -> Option<Difference>;
    /// Returns `a * x + b * y` of two contents, rounded to the type.
    fn combined(&self, x: &[u64], y: &[u64], factors: [f64; 2]) -> Vec<u64>;
    /// Returns the statements of a program that make the array.
    fn statements(&self, name: &str) -> String;
    /// Returns the expression of the array as an argument.
    fn argument(&self, name: &str) -> String;
    /// Returns a finite float as f64, and its permitted difference; `None` for other values, and if
    /// no conversion to f64 exists.
    fn bound(&self, want: u64, tolerance: Option<Tolerance>) -> Option<(f64, f64)>;
    /// Returns the value of an element in a program.
    fn literal(&self, bits: u64) -> String;
}

/// A difference of an element from what is expected.
#[derive(Clone, Debug)]
pub(in crate::test) struct Difference {
    /// Row-major number of the element.
    pub flat: usize,
    /// The expected bits; `None` if the element is not to be written.
    pub want: Option<u64>,
    /// The sentence: element, result, expectation.
    pub message: String,
}

impl<T: TestElement, const R: usize> AnyArray for TestArray<T, R> {
    fn role(&self) -> Role {
        self.role
    }

    fn shape(&self) -> Vec<usize> {
        self.shape.to_vec()
    }

    fn is_checked(&self) -> bool {
        self.is_checked
    }

    fn choices(&self) -> (usize, usize) {
        (if self.is_contiguous { CONTIGUOUS } else { ARRANGEMENTS }, CONTENTS)
    }

    fn set_up(&mut self, arrangement: usize, content: usize, random: Random) {
        let count = self.shape.iter().product();
        self.arrangement = Arrangement::new(arrangement, self.shape);
        self.initial = match self.role {
            Role::Write => vec![poison(0); count],
            _ => self.values.elements(count, content, random),
        };
    }

    fn bits(&self) -> Vec<u64> {
        self.initial.iter().map(|&x| Element::to_bits(x)).collect_vec()
    }

    fn set_bits(&mut self, bits: &[u64]) {
        if bits.len() == self.initial.len() {
            self.initial = bits.iter().map(|&bits| T::from_bits(bits)).collect_vec();
        }
    }

    fn numbers(&self, random: Random) -> Vec<u64> {
        let numbers = self.values.elements::<T>(self.initial.len(), 2, random);
        numbers.into_iter().map(Element::to_bits).collect_vec()
    }

    fn simple_bits(&self) -> [u64; 2] {
        self.values.simple::<T>().map(Element::to_bits)
    }

    fn upload(&mut self, device: Device, variant: usize) -> Result<()> {
        self.variant = variant;
        if self.role == Role::Write {
            self.initial.fill(poison(variant));
        }
        let mut outer = device.full(self.arrangement.outer_shape(), poison(variant))?;
        self.arrangement.view_mut(&mut outer)?.copy_from(&self.initial)?;
        self.outer = Some(outer);
        Ok(())
    }

    fn free(&mut self) {
        self.outer = None;
    }

    fn download(&mut self) -> Result<(Vec<u64>, Option<String>)> {
        let bits = self.with_view(|view| view.to_vec())?.into_iter().map(Element::to_bits).collect_vec();
        let outer = self.outer.as_ref().expect("an array is allocated before a launch").to_vec()?;
        let padding = Element::to_bits(poison::<T>(self.variant));
        let written = outer
            .iter()
            .zip(self.arrangement.padding())
            .position(|(&x, is_padding)| is_padding && Element::to_bits(x) != padding);
        let sentence = written.map(|at| {
            let at = indices(at, &self.arrangement.outer_shape());
            format!("the kernel wrote element {at:?} of the allocation, which is outside of the array")
        });
        Ok((bits, sentence))
    }

    fn difference(&self, got: &[u64], tolerance: Option<Tolerance>) -> Option<Difference> {
        let expected = self.expected.as_ref()?;
        (0..got.len()).find_map(|flat| {
            let is = T::from_bits(got[flat]);
            let (want, named) = if expected.is_written(flat) || self.role == Role::Update {
                let wide = expected.values()[flat];
                (T::narrow(wide), format!("{wide:?}"))
            } else {
                (Some(Element::to_bits(poison::<T>(self.variant))), "no store to it".to_owned())
            };
            if want.is_some_and(|want| is_near(is, T::from_bits(want), tolerance)) {
                return None;
            }
            let message = format!("{} is {is:?}, the reference has {named}", self.name_of(flat));
            Some(Difference { flat, want: want.filter(|_| expected.is_written(flat)), message })
        })
    }

    fn difference_of(&self, got: &[u64], want: &[u64], tolerance: Option<Tolerance>) -> Option<Difference> {
        let flat =
            (0..got.len()).find(|&flat| !is_near(T::from_bits(got[flat]), T::from_bits(want[flat]), tolerance))?;
        let (is, other) = (T::from_bits(got[flat]), T::from_bits(want[flat]));
        let message = format!("{} is {is:?} and {other:?}", self.name_of(flat));
        Some(Difference { flat, want: Some(want[flat]), message })
    }

    fn combined(&self, x: &[u64], y: &[u64], [a, b]: [f64; 2]) -> Vec<u64> {
        let value = |bits: u64| T::from_bits(bits).to_f64();
        x.iter().zip(y).map(|(&x, &y)| Element::to_bits(T::from_f64(a * value(x) + b * value(y)))).collect_vec()
    }

    fn statements(&self, name: &str) -> String {
        let view = self.arrangement.text();
        let padding = text(poison::<T>(self.variant));
        let is_read = self.role == Role::Read;
        let mutable = if is_read { "" } else { "mut " };
        if view.is_empty() {
            return format!("let {mutable}{name} = {};", self.expression());
        }
        let outer = self.arrangement.outer_shape();
        let mut lines = format!("let mut {name} = device.full({outer:?}, {padding})?;");
        if self.role != Role::Write {
            let first = self.initial.first().copied();
            let is_uniform = self.initial.iter().all(|&x| Some(Element::to_bits(x)) == first.map(Element::to_bits));
            let host = match first {
                Some(first) if is_uniform => format!("&[{}; {}]", text(first), self.initial.len()),
                _ => format!("&{}.to_vec()?", self.expression()),
            };
            lines += &format!("\n    {name}.view_mut(){view}.copy_from({host})?;");
        }
        lines
    }

    fn argument(&self, name: &str) -> String {
        let view = self.arrangement.text();
        match (self.role, view.is_empty()) {
            (Role::Read, true) => format!("&{name}"),
            (_, true) => format!("&mut {name}"),
            (Role::Read, false) => format!("&{name}.view(){view}"),
            (_, false) => format!("&mut {name}.view_mut(){view}"),
        }
    }

    fn bound(&self, want: u64, tolerance: Option<Tolerance>) -> Option<(f64, f64)> {
        let want = T::from_bits(want).to_f64();
        let is_converted = T::ULP != 0.0 && size_of::<T>() > 1;
        (is_converted && want.is_finite()).then(|| (want, allowed::<T>(want, tolerance)))
    }

    fn literal(&self, bits: u64) -> String {
        text(T::from_bits(bits))
    }
}

/// Number of elements up to which a program lists them.
const MAX_LISTED: usize = 16;

impl<T: TestElement, const R: usize> TestArray<T, R> {
    /// Returns the expression of a row-major array with the contents.
    fn expression(&self) -> String {
        let shape = self.shape;
        let bits = self.bits();
        let listed = |bits: &[u64]| -> String {
            let mut texts: Vec<String> = bits.iter().map(|&bits| text(T::from_bits(bits))).collect_vec();
            // The first element determines the type.
            for text in texts.iter_mut().skip(1) {
                if let Some(short) = text.strip_suffix(T::NAME).filter(|short| !short.is_empty()) {
                    *text = short.to_owned();
                }
            }
            texts.join(", ")
        };
        let Some(&first) = bits.first() else { return format!("device.zeros::<{}, {R}>({shape:?})?", path::<T>()) };
        // The most frequent of a few elements is the background.
        let count = |of: u64| bits.iter().filter(|&&bits| bits == of).count();
        let background =
            [first, *bits.last().unwrap_or(&first), bits[bits.len() / 2]].into_iter().max_by_key(|&x| count(x));
        let background = background.unwrap_or(first);
        let others: Vec<usize> = (0..bits.len()).filter(|&at| bits[at] != background).collect_vec();
        let text_of = |bits: u64| text(T::from_bits(bits));
        match others[..] {
            [] => format!("device.full({shape:?}, {})?", text_of(background)),
            _ if bits.len() <= MAX_LISTED => format!("device.array(&[{}], {shape:?})?", listed(&bits)),
            [at] => {
                let (index, value) = (indices(at, &shape), text_of(bits[at]));
                let background = text_of(background);
                format!("device.from_fn({shape:?}, |i| if i == {index:?} {{ {value} }} else {{ {background} }})?")
            }
            _ => format!("device.array(&[{}], {shape:?})?", listed(&bits)),
        }
    }
}

//! Kernels in exact mode: two programs of one formula store equal bits, without a tolerance, for
//! all tiles, splits, chunks and orders. One test for each family.

mod attention;
mod products;
mod rows;

use cutlet as ct;
use cutlet::element::Element;
use cutlet::{DeviceArray, Stream};

use crate::support::device;

fn stream() -> Stream {
    device().default_stream()
}

/// Bits of the results of programs of one formula, by name.
#[derive(Default)]
struct Results(Vec<(String, Vec<u64>)>);

impl Results {
    /// Runs a program in exact mode, and adds its stored elements.
    fn add<T: Element, const R: usize>(
        &mut self,
        name: impl Into<String>,
        program: impl FnOnce() -> ct::Result<DeviceArray<T, R>>,
    ) -> ct::Result<()> {
        let result = ct::with_exact_mode(program)?.to_vec()?;
        self.0.push((name.into(), result.into_iter().map(Element::to_bits).collect()));
        Ok(())
    }

    /// Panics unless all results are those of the first program, whose elements differ from each
    /// other.
    #[track_caller]
    fn agree(&self) {
        let (first, expected) = &self.0[0];
        assert!(self.0.len() > 1, "one program alone");
        assert!(expected.iter().any(|bits| *bits != expected[0]), "{first}: all elements are equal");
        for (name, result) in &self.0[1..] {
            let wrong = expected.iter().zip(result).filter(|(a, b)| a != b).count();
            assert_eq!(expected.len(), result.len(), "{name} and {first}: number of elements");
            assert_eq!(wrong, 0, "{name} differs from {first} in {wrong} of {} elements", expected.len());
        }
    }
}

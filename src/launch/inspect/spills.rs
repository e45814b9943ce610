//! Values in local memory by source line, from the machine code of a kernel with lines.
//!
//! The driver returns only relocatable code, whose assembler ignores `setmaxnreg`. Code with roles
//! is therefore assembled for the registers of the consumer warps; it is not executed.

use std::fmt::{self, Write as _};

use crate::backend::{Hints, ptx};
use crate::error::{Error, Result};
use crate::launch::compile::check_hints::assembly;
use crate::runtime::{Gpu, SpilledLine, assemble, local_memory, wants_whole_program};
use crate::target::Target;

/// Lines of a kernel whose values live in local memory, made by
/// [`Inspection::spills`](super::text::Inspection::spills). `Display` writes one line each.
///
/// ```
/// use cutlet as ct;
///
/// let x = ct::ArraySpec::<f32, 1>::new([1 << 20]);
/// let double = |x: ct::ArrayMut<f32, 1>| x.store(ct::bid(0), x.load(ct::bid(0), [1024]) * 2.0);
/// match ct::inspect(double, (x.mutable(),)).spills() {
///     Ok(spills) => assert!(spills.lines.is_empty(), "{spills}"),
///     Err(error) => println!("{error}"), // neither a GPU nor ptxas
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Spills {
    /// Name of the kernel.
    pub kernel: String,
    /// Name of the assembler.
    pub assembler: &'static str,
    /// The lines, with the most accesses in loops first.
    pub lines: Vec<SpilledLine>,
}

impl Spills {
    /// Returns the bytes of local memory of a thread. Values of two lines may use the same bytes at
    /// different times.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let x = ct::ArraySpec::<f32, 1>::new([1 << 20]);
    /// let fill = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), ct::zeros([1024]));
    /// if let Ok(spills) = ct::inspect(fill, (x.mutable(),)).spills() {
    ///     assert_eq!(spills.bytes(), 0);
    /// }
    /// ```
    pub fn bytes(&self) -> u32 {
        self.lines.iter().map(|line| line.bytes).sum()
    }

    /// Returns the lines of generated PTX, assembled by the driver.
    ///
    /// # Errors
    /// [`Error::Compile`] with the log of the driver.
    pub(crate) fn by_driver(gpu: &Gpu, code: &ptx::Compiled, hints: Hints) -> Result<Spills> {
        let (text, assembler) = match wants_whole_program(&code.text) {
            true => (for_linker(&code.text), "the driver, for the registers of the consumer warps"),
            false => (code.text.clone(), "the driver"),
        };
        let cubin = assemble(gpu, &code.entry, &text, assembly(hints.line_info(true)))?;
        Spills::assembled(&code.entry, assembler, &cubin.bytes, gpu.target())
    }

    /// Returns the lines of a kernel in machine code, a cubin for a target that was assembled with
    /// lines (`ptxas -lineinfo`).
    ///
    /// ```
    /// use cutlet as ct;
    ///
    /// let error = ct::inspect::Spills::of_cubin("kernel", b"no cubin", ct::Target::SM_90A).unwrap_err();
    /// assert!(matches!(error, ct::Error::Compile { .. }));
    /// ```
    ///
    /// # Errors
    /// [`Error::Compile`] if the file is damaged, or has no kernel of this name.
    pub fn of_cubin(kernel: &str, cubin: &[u8], target: Target) -> Result<Spills> {
        Spills::assembled(kernel, "ptxas", cubin, target)
    }

    fn assembled(kernel: &str, assembler: &'static str, cubin: &[u8], target: Target) -> Result<Spills> {
        let lines = local_memory(cubin, kernel, target.arch).ok_or_else(|| Error::Compile {
            kernel: kernel.to_owned(),
            stage: "the reader of machine code",
            log: "the section of the kernel or its lines have an unknown form".to_owned(),
        })?;
        Ok(Spills { kernel: kernel.to_owned(), assembler, lines })
    }
}

/// Returns PTX whose relocatable code has the registers of the consumer warps: the limit of
/// `setmaxnreg.inc` instead of the limits of a launch.
fn for_linker(text: &str) -> String {
    let of_line = |line: &str| -> Option<u32> {
        let (_, number) = line.trim().strip_suffix(';')?.split_once("setmaxnreg.inc")?;
        number.split_whitespace().last()?.parse().ok()
    };
    let registers = text.lines().find_map(of_line);
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let is_limit = line.starts_with(".minnctapersm") || line.starts_with(".reqntid");
        if line.contains("setmaxnreg") || is_limit && registers.is_some() && !line.starts_with(".reqntid") {
            continue;
        }
        match registers.filter(|_| line.starts_with(".reqntid")) {
            Some(registers) => writeln!(out, ".maxnreg {registers}"),
            None => writeln!(out, "{line}"),
        }
        .expect("a text");
    }
    out
}

impl fmt::Display for Spills {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Spills { kernel, assembler, lines } = self;
        match lines.is_empty() {
            true => write!(f, "kernel `{kernel}`: no value is in local memory (assembled by {assembler})")?,
            false => write!(f, "kernel `{kernel}`: values in local memory (assembled by {assembler})")?,
        }
        lines.iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::ptx::ptxas_test::cubin_with_lines;
    use crate::launch::inspect::text::{Inspection, inspect};
    use crate::prelude::*;
    use crate::{ArraySpec, bid, fold, ones};

    /// The line of the values that do not fit into the registers.
    const PLANTED: u32 = line!() + 4;

    /// Holds a tile during a loop whose accumulator is as large.
    fn planted(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
        let kept = x.load(bid(0), [6144]).sqrt();
        let sum = fold(crate::range(0, x.num_tiles(0, [6144])), ones::<f32, 1>([6144]), |sum, i| {
            sum * kept + x.load(i, [6144])
        });
        y.store(bid(0), sum);
    }

    fn plain(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
        y.store(bid(0), x.load(bid(0), [1024]) * 2.0);
    }

    /// Prints a number: its text and its value are an array of the thread.
    fn printing(x: Array<f32, 1>, _: ArrayMut<f32, 1>) {
        crate::println!("{}", x.load_scalar(0));
    }

    type Subject = fn(Array<f32, 1>, ArrayMut<f32, 1>);

    fn inspected(kernel: Subject, target: Target) -> Inspection {
        let x = ArraySpec::<f32, 1>::new([1 << 20]);
        inspect(kernel, (x, x.mutable())).target(target).hints(Hints::new().num_warps(1).occupancy(1).line_info(true))
    }

    /// Returns the lines of the code of ptxas, if there is one.
    fn spills(kernel: Subject, target: Target) -> Option<Spills> {
        let text = inspected(kernel, target).ptx().expect("PTX");
        let entry = text.split(".entry ").nth(1).and_then(|rest| rest.split('(').next()).expect("an entry");
        let cubin = cubin_with_lines(target, &text)?;
        Some(Spills::of_cubin(entry, &cubin, target).expect("machine code"))
    }

    #[track_caller]
    fn assert_planted(spills: &Spills) {
        println!("{spills}");
        let is_planted = |line: &&SpilledLine| line.place.as_ref().is_some_and(|place| place.1 == PLANTED);
        let kept = spills.lines.iter().find(is_planted).expect("the planted line");
        assert!(kept.place.as_ref().expect("a place").0.ends_with("spills.rs"), "{spills}");
        // Half of the values, at least, which are loaded in each iteration and stored before it.
        assert!(!kept.is_array && kept.bytes >= 4 * 96 && kept.loop_loads >= 96, "{spills}");
        assert!(kept.stores > 0 && kept.loop_stores < kept.stores / 8, "{spills}");
        assert!(spills.bytes() >= kept.bytes && spills.to_string().contains(&format!("spills.rs:{PLANTED}: ")));
    }

    #[test]
    fn the_line_of_spilled_values_is_named() {
        for target in [Target::SM_80, Target::SM_90A, Target { arch: 100, accelerated: true }] {
            let Some(found) = spills(planted, target) else { return };
            assert_planted(&found);
        }
    }

    #[test]
    fn code_without_local_memory_names_no_line() {
        let Some(found) = spills(plain, Target::SM_90A) else { return };
        assert!(found.lines.is_empty() && found.bytes() == 0, "{found}");
        assert!(found.to_string().contains("no value is in local memory"), "{found}");
    }

    #[test]
    fn arrays_of_a_thread_are_no_spills() {
        let Some(found) = spills(printing, Target::SM_90A) else { return };
        println!("{found}");
        assert!(!found.lines.is_empty() && found.lines.iter().all(|line| line.is_array), "{found}");
    }

    #[test]
    fn code_for_the_linker_has_the_registers_of_consumers() {
        let text = ".entry k(\n)\n.reqntid 384, 1, 1\n.minnctapersm 1\n{\n    setmaxnreg.inc.sync.aligned.u32 240;\n\
                    \x20   setmaxnreg.dec.sync.aligned.u32 40;\n    ret;\n}\n";
        assert_eq!(for_linker(text), ".entry k(\n)\n.maxnreg 240\n{\n    ret;\n}\n");
        let plain = ".entry k(\n)\n.reqntid 128, 1, 1\n.minnctapersm 2\n{\n    ret;\n}\n";
        assert_eq!(for_linker(plain), plain);
    }

    #[test]
    fn the_driver_names_lines_on_a_gpu() {
        let Some(target) = crate::Device::gpu(0).ok().and_then(|device| device.target()) else { return };
        let code = |kernel| {
            let module = inspected(kernel, target);
            module.compiled().expect("PTX")
        };
        let gpu = Gpu::get(0).expect("the GPU");
        let hints = Hints::new();
        assert_planted(&Spills::by_driver(gpu, &code(planted), hints).expect("lines"));
        let none = Spills::by_driver(gpu, &code(plain), hints).expect("machine code");
        assert!(none.lines.is_empty(), "{none}");
        let arrays = Spills::by_driver(gpu, &code(printing), hints).expect("lines");
        assert!(!arrays.lines.is_empty() && arrays.lines.iter().all(|line| line.is_array), "{arrays}");
        // Code with warp roles, by the driver and by ptxas if there is one.
        let roles =
            inspect(heavy, (ArraySpec::<f16, 2>::new([1024, 1024]), ArraySpec::<f32, 2>::new([1024, 1024]).mutable()));
        let roles = roles.target(target).hints(Hints::new().line_info(true));
        let by_driver = Spills::by_driver(gpu, &roles.compiled().expect("PTX"), hints).expect("lines");
        println!("{by_driver}");
        if target.arch == 90 {
            assert!(by_driver.assembler.contains("consumer warps"), "{by_driver}");
            assert!(by_driver.lines.iter().any(|line| line.loop_loads > 0), "{by_driver}");
        }
    }

    /// A product whose accumulators and a further tile exceed the registers.
    fn heavy(a: Array<f16, 2>, c: ArrayMut<f32, 2>) {
        let kept = c.load((bid(0), bid(1)), [128, 256]).sqrt();
        let sum = fold(crate::range(0, a.num_tiles(1, [128, 64])), kept, |sum, k| {
            crate::mma(a.load((bid(0), k), [128, 64]), a.load((k, bid(1)), [64, 256]), sum) * kept
        });
        c.store((bid(0), bid(1)), sum);
    }
}

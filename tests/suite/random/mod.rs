//! Random kernels: each is generated from its number, run like any other test, and compared to the
//! last bit with an evaluation of its own in host arithmetic. The forms that they are made of are
//! rows of the tables in `ops`. One that fails is reduced to its core, which is printed as Rust.
//!
//! `CUTLET_RANDOM_SEED` is the number of the first kernel (1), `CUTLET_RANDOM_COUNT` how many there
//! are (20; 60 with `CUTLET_TESTS=all`). A failing test names its number:
//! `CUTLET_RANDOM_SEED=n CUTLET_RANDOM_COUNT=1` runs it alone. `CUTLET_RANDOM_REDUCE=seconds` says
//! how long a reduction may take (20; 0: none).

mod dispatch;
mod draw;
mod kind;
mod layouts;
mod ops;
mod packed;
mod print;
#[allow(warnings, clippy::all)]
#[rustfmt::skip]
mod printed;
mod program;
mod reference;
mod shrink;
mod tests;
mod trace;

use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use cutlet as ct;
use cutlet::DeviceArray;
use cutlet::packed::{Narrow, PackedDeviceArray};
use cutlet::prelude::*;

use self::kind::{Kind, Number, each_kind};
use self::packed::{Packed, each_packed};
use self::print::{Codes, Content};
use self::program::Program;
use self::reference::{Arrays, Values};
use crate::data::{Spread, random};
use crate::exact;
use crate::harness::{Session, Suite, Want, ravel};
use crate::test_sample::one_in;

pub use self::tests::trials;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok())
}

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    let first = number("CUTLET_RANDOM_SEED").unwrap_or(1);
    let count = number("CUTLET_RANDOM_COUNT").unwrap_or(60 / one_in(3) as u64);
    for seed in first..first + count {
        suite.test(format!("random/{seed:05}"), move |session| match seed % 8 {
            // Code of arrays beyond 2^31 elements, of small ones.
            6 => cutlet::with_index64(|| run(session, seed)),
            _ => run(session, seed),
        });
    }
}

fn run(session: Session, seed: u64) -> Result<()> {
    let program = draw::generate(seed);
    tried(session, seed, &program).map_err(|error| {
        let core = core(session, seed, &program, &failure(&error));
        let about = format!("random kernel {seed} (CUTLET_RANDOM_SEED={seed} CUTLET_RANDOM_COUNT=1)");
        error.context(format!("{about}\n{core}\nof the whole kernel"))
    })
}

/// The problem of a random kernel, if it has one.
pub fn problem(session: Session, seed: u64) -> Option<String> {
    tried(session, seed, &draw::generate(seed)).err().map(|error| format!("{error:#}"))
}

/// The numbers of steps of the first of `count` kernels that fails, before and after its reduction.
pub fn reduced_size(session: Session, count: u64) -> Result<(usize, usize)> {
    let failing = (1..=count).map(|seed| (seed, draw::generate(seed)));
    let failing = failing.filter_map(|(seed, program)| Some((seed, tried(session, seed, &program).err()?, program)));
    let (seed, error, program) = failing.into_iter().next().ok_or_else(|| anyhow!("no kernel fails"))?;
    let kind = failure(&error);
    let fails = &mut |candidate: &Program| tried(session, seed, candidate).is_err_and(|e| failure(&e) == kind);
    let core = shrink::reduced(&program, Duration::from_secs(20), fails);
    let steps = |program: &Program| {
        let mut steps = 0;
        program.each(&mut |_| steps += 1);
        steps
    };
    Ok((steps(&program), steps(&core)))
}

/// Runs a program; a panic is an error.
fn tried(session: Session, seed: u64, program: &Program) -> Result<()> {
    let run = std::panic::AssertUnwindSafe(|| exact::compared(session, &|session| check(session, seed, program)));
    std::panic::catch_unwind(run).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
        Err(anyhow!("panicked: {}", text.unwrap_or_default()))
    })
}

/// Returns the kind of a failure; the reduction keeps failures of the same kind.
fn failure(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    if text.contains("elements are wrong") {
        return "wrong elements".to_string();
    }
    let line = text.lines().next().unwrap_or_default();
    line.chars().filter(|c| c.is_alphabetic() || *c == ' ').take(40).collect()
}

/// The core of a failing program as Rust, with its failure.
fn core(session: Session, seed: u64, program: &Program, failure: &str) -> String {
    let limit = Duration::from_secs(number("CUTLET_RANDOM_REDUCE").unwrap_or(20));
    let fails = |candidate: &Program| tried(session, seed, candidate).is_err_and(|e| self::failure(&e) == failure);
    // If even the empty program fails, as after a fault on a GPU, the search for a smaller case is
    // useless.
    let empty = Program { steps: vec![], ..program.clone() };
    let core = match tried(session, seed, &empty).is_ok() && !limit.is_zero() {
        true => shrink::reduced(program, limit, &mut |candidate| fails(candidate)),
        false => program.clone(),
    };
    let wrong = tried(session, seed, &core).err().unwrap_or_else(|| anyhow!("nothing: it fails now and then"));
    print::whole(&core, &contents(seed, &core), &codes(seed, &core), &format!("{wrong:#}"))
}

/// Returns the initial content of the arrays of a kind: of the inputs, or of the outputs.
fn content<T: Element>(seed: u64, kind: Kind, count: usize, of_output: bool) -> Vec<T> {
    // Any bits on every second kernel: most results are then NaN or all sign. Sometimes corners
    // alone.
    let spread = match seed % 2 {
        _ if seed % 3 != 1 && seed.is_multiple_of(5) => Spread::Corners,
        0 => Spread::Any,
        _ => Spread::Moderate,
    };
    random::<T>((seed * 32 + kind as u64) * 2 + u64::from(of_output), count, spread)
}

/// Bits of all arrays of a program.
fn contents(seed: u64, program: &Program) -> [Vec<Content>; 2] {
    let count = program.shape[0] * program.shape[1];
    let arrays = program.arrays();
    [(0, false), (1, true)].map(|(which, of_output)| {
        let bits = |&kind: &Kind| {
            let bits = dispatch::dispatch!(T: arrays, kind => {
                content::<T>(seed, kind, count, of_output).iter().map(|&x| Element::to_bits(x)).collect()
            });
            Content { kind, bits }
        };
        arrays[which].iter().map(bits).collect()
    })
}

/// Codes of all packed arrays of a program.
fn codes(seed: u64, program: &Program) -> [Vec<Codes>; 2] {
    let count = program.shape[0] * program.shape[1];
    let mut which = 0;
    program.packed().map(|types| {
        which += 1;
        let codes = |packed: Packed| {
            let mask = (1 << packed.narrow().bits()) - 1;
            let bytes = random::<u8>((seed * 32 + packed as u64) * 4 + which, count, Spread::Any);
            Codes { packed, codes: bytes.iter().map(|byte| byte & mask).collect() }
        };
        types.into_iter().map(codes).collect()
    })
}

/// The contents as numbers: by kind, and codes after them.
fn values(contents: &[Content], codes: &[Codes], shape: [usize; 2]) -> Arrays {
    let mut arrays: Arrays = vec![None; Kind::ARRAYS.len() + 1 + Packed::ALL.len()];
    for Codes { packed, codes } in codes {
        let data = codes.iter().map(|&code| Number::Int(code.into())).collect();
        arrays[packed.place()] = Some(Values { kind: Kind::U8, shape, data });
    }
    for Content { kind, bits } in contents {
        let data = bits.iter().map(|&bits| kind.of_bits(bits)).collect();
        arrays[*kind as usize] = Some(Values { kind: *kind, shape, data });
    }
    arrays
}

/// The array of a kind with this content, if there is one.
fn list<T: Element>(
    session: Session,
    shape: [usize; 2],
    kind: Kind,
    contents: &[Content],
) -> Result<Vec<DeviceArray<T, 2>>> {
    let Some(content) = contents.iter().find(|content| content.kind == kind) else { return Ok(vec![]) };
    let data: Vec<T> = content.bits.iter().map(|&bits| Element::from_bits(bits)).collect();
    Ok(vec![session.array(&data, shape)?])
}

macro_rules! run_with_arrays {
    ($($float:ident $fty:ident $fname:ident),+; $($int:ident $ity:ident $iname:ident),+) => {
        /// Runs a program and compares its stored elements.
        fn check(session: Session, seed: u64, program: &Program) -> Result<()> {
            let without = session.through_tile_ir().then(|| layouts::without_layouts(program));
            let program = without.as_ref().unwrap_or(program);
            let (shape, [given, kept]) = (program.shape, contents(seed, program));
            let [given_codes, kept_codes] = codes(seed, program);
            let reads = PackedLists::made(session, shape, &given_codes)?;
            let mut writes = PackedLists::made(session, shape, &kept_codes)?;
            let inputs = ($(list::<$fty>(session, shape, Kind::$float, &given)?,)+
                $(list::<$ity>(session, shape, Kind::$int, &given)?,)+);
            $(let mut $fname = list::<$fty>(session, shape, Kind::$float, &kept)?;)+
            $(let mut $iname = list::<$ity>(session, shape, Kind::$int, &kept)?;)+
            {
                let read = lists(&inputs);
                let written = (($($fname.iter_mut().collect::<Vec<_>>(),)+), ($($iname.iter_mut().collect::<Vec<_>>(),)+));
                let packed = (reads.read(), writes.written());
                session.launch(trace::kernel, program.grid(), (read, written, packed, Constant(program.clone())))?;
            }
            if session.only_compiles() {
                return Ok(());
            }
            if exact::is_active() {
                $(note(Kind::$float, &$fname)?;)+
                $(note(Kind::$int, &$iname)?;)+
                return writes.note();
            }
            let (inputs, mut wanted) = (values(&given, &given_codes, shape), values(&kept, &kept_codes, shape));
            reference::run(&shrink::without_dead(program), &inputs, &mut wanted);
            $(compare(session, Kind::$float, &$fname, &wanted)?;)+
            $(compare(session, Kind::$int, &$iname, &wanted)?;)+
            writes.compare(&wanted)
        }

        type Lists = ($(Vec<DeviceArray<$fty, 2>>,)+ $(Vec<DeviceArray<$ity, 2>>,)+);

        fn lists(
            ($($fname,)+ $($iname,)+): &Lists,
        ) -> (($(Vec<&DeviceArray<$fty, 2>>,)+), ($(Vec<&DeviceArray<$ity, 2>>,)+)) {
            (($($fname.iter().collect(),)+), ($($iname.iter().collect(),)+))
        }
    };
}
each_kind!(run_with_arrays);

/// Notes or compares the bits of an array, if there is one.
fn note<T: Element>(kind: Kind, got: &[DeviceArray<T, 2>]) -> Result<()> {
    let Some(got) = got.first() else { return Ok(()) };
    exact::check(kind.name(), got.to_vec()?.into_iter().map(T::to_bits).collect())
}

fn compare<T: Element>(session: Session, kind: Kind, got: &[DeviceArray<T, 2>], wanted: &Arrays) -> Result<()> {
    let (Some(got), Some(wanted)) = (got.first(), &wanted[kind as usize]) else { return Ok(()) };
    session.check(kind.name(), got, &|at| match wanted.data[ravel(at, wanted.shape)] {
        Number::Float(x) => Want::nearest(x),
        number => Want::Bits(kind.to_bits(number)),
    })
}

macro_rules! packed_arrays {
    ($($variant:ident $name:ident $narrow:expr),+) => {
        /// Packed arrays: of each type one or none.
        struct PackedLists {
            $($name: Vec<PackedDeviceArray<ct::packed::$name, 2>>,)+
        }

        impl PackedLists {
            fn made(session: Session, shape: [usize; 2], contents: &[Codes]) -> Result<PackedLists> {
                Ok(PackedLists { $($name: packed_list(session, shape, Packed::$variant, contents)?,)+ })
            }

            fn read(&self) -> ($(Vec<&PackedDeviceArray<ct::packed::$name, 2>>,)+) {
                ($(self.$name.iter().collect(),)+)
            }

            fn written(&mut self) -> ($(Vec<&mut PackedDeviceArray<ct::packed::$name, 2>>,)+) {
                ($(self.$name.iter_mut().collect(),)+)
            }

            fn note(&self) -> Result<()> {
                $(if let Some(got) = self.$name.first() {
                    exact::check(stringify!($name), got.to_vec()?.iter().map(|x| x.code().into()).collect())?;
                })+
                Ok(())
            }

            fn compare(&self, wanted: &Arrays) -> Result<()> {
                $(compare_codes(Packed::$variant, &self.$name, wanted)?;)+
                Ok(())
            }
        }
    };
}
each_packed!(packed_arrays);

/// The array of a type with these codes, if there is one.
fn packed_list<F: Narrow>(
    session: Session,
    shape: [usize; 2],
    packed: Packed,
    contents: &[Codes],
) -> Result<Vec<PackedDeviceArray<F, 2>>> {
    let Some(content) = contents.iter().find(|content| content.packed == packed) else { return Ok(vec![]) };
    let data: Vec<F> = content.codes.iter().map(|&code| F::from_code(code)).collect();
    Ok(vec![session.device().packed(&data, shape)?])
}

fn compare_codes<F: Narrow>(packed: Packed, got: &[PackedDeviceArray<F, 2>], wanted: &Arrays) -> Result<()> {
    let (Some(got), Some(wanted)) = (got.first(), &wanted[packed.place()]) else { return Ok(()) };
    for (place, (got, want)) in got.to_vec()?.iter().zip(&wanted.data).enumerate() {
        let (got, want) = (got.code(), want.int());
        ensure!(
            i128::from(got) == want,
            "{}: elements are wrong: code {got:#x} at {place} instead of {want:#x}",
            F::NAME
        );
    }
    Ok(())
}

//! Assembly of Tile IR bytecode: by the driver's compiler, or by `tileiras`.

use crate::error::{Error, Result};
use crate::runtime::Gpu;
use crate::target::Target;

/// First driver with a compiler for Tile IR, in the format of `cuDriverGetVersion`: 13.1.
const FIRST_DRIVER: i32 = 13_010;
/// First architecture for which drivers compile Tile IR.
const FIRST_ARCH: u32 = 100;

/// Returns true if the driver of this GPU compiles bytecode, and this crate generates it.
#[inline]
pub(crate) fn driver_compiles(gpu: &Gpu) -> bool {
    // Executed by every launch: the driver version is read only if it matters.
    cfg!(feature = "tileir")
        && gpu.target().arch >= FIRST_ARCH
        && compiles(gpu.target(), gpu.driver_version().unwrap_or(0))
}

fn compiles(target: Target, driver: i32) -> bool {
    target.arch >= FIRST_ARCH && driver >= FIRST_DRIVER
}

/// Assembler of bytecode. `CUTLET_TILEIR` selects one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TileIrAssembler {
    Driver,
    Tileiras,
}

/// Returns the assemblers for a target and a driver, the preferred one first, and the reasons for
/// which others are excluded.
pub(crate) fn assemblers(
    target: Target,
    driver: i32,
    requested: Option<&str>,
) -> Result<(Vec<TileIrAssembler>, Vec<String>)> {
    match requested {
        Some("driver") => return Ok((vec![TileIrAssembler::Driver], Vec::new())),
        Some("tileiras") => return Ok((vec![TileIrAssembler::Tileiras], Vec::new())),
        Some("") | None => {}
        Some(other) => {
            return Err(Error::environment("CUTLET_TILEIR", other, "expected driver or tileiras"));
        }
    }
    if compiles(target, driver) {
        return Ok((vec![TileIrAssembler::Driver, TileIrAssembler::Tileiras], Vec::new()));
    }
    let (major, minor) = (driver / 1000, driver % 1000 / 10);
    let reason = format!(
        "the driver was not asked: it is of CUDA {major}.{minor} for {target}, and compiles Tile IR from CUDA 13.1 on \
         for sm_100 and later"
    );
    Ok((vec![TileIrAssembler::Tileiras], vec![reason]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blackwell_and_a_new_driver_compile_by_themselves() {
        let target = |name: &str| name.parse::<Target>().expect("a target");
        for (name, driver, compiled) in
            [("sm_100", 13_010, true), ("sm_120", 13_020, true), ("sm_100", 13_000, false), ("sm_90a", 13_020, false)]
        {
            assert_eq!(compiles(target(name), driver), compiled, "{name} {driver}");
            let (found, reasons) = assemblers(target(name), driver, None).expect("no request");
            let expected: &[TileIrAssembler] = if compiled {
                &[TileIrAssembler::Driver, TileIrAssembler::Tileiras]
            } else {
                &[TileIrAssembler::Tileiras]
            };
            assert_eq!((found.as_slice(), reasons.is_empty()), (expected, compiled), "{name} {driver}");
        }
        let (_, reasons) = assemblers(target("sm_90a"), 13_000, None).expect("no request");
        assert!(reasons[0].contains("CUDA 13.0 for sm_90a") && reasons[0].contains("sm_100 and later"), "{reasons:?}");
        // A request is followed on any target and driver.
        assert_eq!(
            assemblers(target("sm_90a"), 13_000, Some("driver")).expect("a request").0,
            [TileIrAssembler::Driver]
        );
        assert_eq!(
            assemblers(target("sm_100"), 13_010, Some("tileiras")).expect("a request").0,
            [TileIrAssembler::Tileiras]
        );
        let error = assemblers(target("sm_100"), 13_010, Some("nvcc")).expect_err("no such assembler").to_string();
        assert!(error.contains("expected driver or tileiras"), "{error}");
    }
}

//! Remarks and files of the code for the GPU that `CUTLET_TARGET` names, on the cpu back end.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use cutlet as ct;
use cutlet::prelude::*;

fn product(a: Array<f16, 2>, b: Array<f16, 2>, c: ArrayMut<f32, 2>) {
    let (i, j) = (ct::bid(0), ct::bid(1));
    let sum = ct::fold(..a.num_tiles(1, [64, 32]), ct::zeros([64, 64]), |sum, k| {
        ct::mma(a.load((i, k), [64, 32]), b.load((k, j), [32, 64]), sum)
    });
    c.store((i, j), sum);
}

/// A product whose results are exponentials, which the fast float mode makes cheaper.
fn exponentials(a: Array<f16, 2>, b: Array<f16, 2>, c: ArrayMut<f32, 2>, is_fast: bool) {
    let mode = if is_fast { ct::FloatMode::fast() } else { ct::FloatMode::new() };
    let sum = ct::with_mode(mode, || {
        ct::fold(..b.num_tiles(1, [32, 64]), ct::zeros::<f32, 2>([64, 64]), |sum, j| {
            let scores = ct::mma(a.load((0, 0), [64, 32]), b.load((0, j), [32, 64]), ct::zeros::<f32, 2>([64, 64]));
            sum + (scores * 0.25 - 1.0).exp2() / (scores * scores + 1.0)
        })
    });
    c.store((0, 0), sum);
}

/// The launches of the child process with exponentials.
#[test]
fn child_with_exponentials() -> ct::Result<()> {
    let Some(is_fast) = std::env::var_os("CUTLET_PREVIEW_FAST") else { return Ok(()) };
    let device = ct::Device::cpu();
    let (a, b) = (device.full([64, 32], f16::ONE)?, device.full([32, 128], f16::ONE)?);
    let mut c = device.zeros::<f32, 2>([64, 64])?;
    ct::launch(exponentials, 1, (&a, &b, &mut c, Constant(is_fast == "1")))
}

/// The launch of the child process, on the cpu device.
#[test]
fn child() -> ct::Result<()> {
    if std::env::var_os("CUTLET_PREVIEW_CHILD").is_none() {
        return Ok(());
    }
    let device = ct::Device::cpu();
    let (a, b) = (device.full([64, 64], f16::ONE)?, device.full([64, 64], f16::ONE)?);
    let mut c = device.zeros::<f32, 2>([64, 64])?;
    let checks = ct::Launch::new([1, 1]).checks(ct::Checks::all());
    let launch = if std::env::var_os("CUTLET_PREVIEW_CHECKS").is_some() { checks } else { ct::Launch::new([1, 1]) };
    launch.launch(product, (&a, &b, &mut c))?;
    assert!(c.to_vec()?.iter().all(|&x| x == 64.0));
    Ok(())
}

/// Returns the standard error of the child, and the extensions of its files.
fn launched(variables: &[(&str, &str)]) -> (String, Vec<String>) {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("cutlet-preview-{}-{count}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args(["--exact", "child", "child_with_exponentials", "--nocapture"])
        .env("CUTLET_PREVIEW_CHILD", "1")
        .env("CUTLET_REMARKS", "1");
    command.env("CUTLET_DUMP", &folder).envs(variables.iter().copied());
    let output = command.output().expect("this program again");
    assert!(output.status.success(), "{output:?}");
    let files = std::fs::read_dir(&folder).expect("the folder");
    let extension = |file: std::fs::DirEntry| file.path().extension().unwrap().to_str().unwrap().to_owned();
    let mut files: Vec<String> = files.map(|file| extension(file.unwrap())).collect();
    files.sort();
    std::fs::remove_dir_all(&folder).expect("the folder");
    (String::from_utf8_lossy(&output.stderr).into_owned(), files)
}

#[test]
fn code_of_the_named_target_is_shown() {
    let all = ["ir", "layout", "ptx", "schedule", "svg"];
    let (said, files) = launched(&[("CUTLET_TARGET", "sm_90a")]);
    assert!(said.contains("product: code for sm_90a") && said.contains("wgmma.mma_async"), "{said}");
    assert_eq!(files, all);
    let (said, files) = launched(&[("CUTLET_TARGET", "sm_80"), ("CUTLET_PREVIEW_CHECKS", "1")]);
    assert!(said.contains("product: code for sm_80") && !said.contains("wgmma"), "{said}");
    assert_eq!(files, all);
}

#[test]
fn the_gain_of_the_fast_float_mode_is_stated() {
    let (said, _) = launched(&[("CUTLET_TARGET", "sm_90a"), ("CUTLET_PREVIEW_FAST", "0")]);
    assert!(said.contains("float mode: ") && said.contains("FloatMode::fast()"), "{said}");
    let (said, _) = launched(&[("CUTLET_TARGET", "sm_90a"), ("CUTLET_PREVIEW_FAST", "1")]);
    assert!(said.contains("exponentials: code for sm_90a") && !said.contains("float mode: "), "{said}");
}

#[test]
fn without_a_target_there_is_no_such_code() {
    let (said, files) = launched(&[]);
    assert!(!said.contains("code for") && said.contains("a launch over"), "{said}");
    assert_eq!(files, ["ir"]);
}

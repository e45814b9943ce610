//! Targets, resources, the machine.

use std::process::Command;

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{Device, Hints, Target};

use crate::rustc;
use crate::said::{Answer, Case};
use crate::shapes::{array, array_mut};
use Answer::Said;

pub const CASES: [Case; 10] = [
    Case { title: "f8e4m3fn on sm_80", score: 3, answer: Said(small_floats) },
    Case { title: "a product too large for shared memory", score: 3, answer: Said(large_product) },
    Case { title: "one tile of 4096 x 4096, transposed", score: 3, answer: Said(large_transpose) },
    Case { title: "tiles for far more registers than there are", score: 3, answer: Said(many_registers) },
    Case { title: "no GPU", score: 3, answer: Said(no_gpu) },
    Case { title: "a driver that is too old", score: 3, answer: Said(old_driver) },
    Case { title: "an array larger than memory", score: 3, answer: Said(large_array) },
    Case { title: "`num_warps: Some(3)`", score: 3, answer: Said(odd_hint) },
    Case { title: "`CUTLET_BACKEND=cuda`", score: 3, answer: Said(unknown_backend) },
    Case { title: "an error as `main() -> ct::Result<()>` prints it", score: 3, answer: Said(from_main) },
];

fn code<X>(result: ct::Result<X>) -> String {
    match result {
        Ok(_) => "nothing".into(),
        Err(error) => error.to_string(),
    }
}

fn small_floats() -> String {
    fn kernel(a: Array<f8e4m3fn, 1>, c: ArrayMut<f32, 1>) {
        c.store(0, a.load(0, [64]).cast());
    }
    format!("{}: it works", code(ct::inspect(kernel, (array(), array_mut())).target(Target::SM_80).ptx()))
}

fn large_product() -> String {
    fn kernel(a: Array<f16, 2>, b: Array<f16, 2>, c: ArrayMut<f16, 2>) {
        let k = a.num_tiles(1, [512, 128]);
        let acc = ct::fold(..k, ct::zeros::<f32, 2>([512, 512]), |acc, k| {
            ct::mma(a.load((0, k), [512, 128]), b.load((k, 0), [128, 512]), acc)
        });
        c.store((0, 0), acc.cast::<f16>());
    }
    code(ct::inspect(kernel, (array(), array(), array_mut())).target("sm_89".parse().unwrap()).ptx())
}

fn large_transpose() -> String {
    fn kernel(a: Array<f32, 2>, c: ArrayMut<f32, 2>) {
        c.store((0, 0), a.load((0, 0), [4096, 4096]).transpose());
    }
    code(
        ct::inspect(
            kernel,
            (ct::ArraySpec::<f32, 2>::new([4096; 2]), ct::ArraySpec::<f32, 2>::new([4096; 2]).mutable()),
        )
        .target(Target::SM_90A)
        .ptx(),
    )
}

/// Messages on standard error, during the generation of code.
fn many_registers() -> String {
    let unasked = in_another_process("machine::registers", &[]);
    let asked = in_another_process("machine::registers", &[("CUTLET_REMARKS", "1")]);
    format!("{unasked}\nwith CUTLET_REMARKS=1:\n{}", asked.replace(&unasked, "").trim_start())
}

#[test]
fn registers() {
    fn kernel(a: Array<f32, 2>, c: ArrayMut<f32, 2>) {
        let x = a.load((0, 0), [256, 256]);
        c.store((0, 0), x + x.transpose().exp());
    }
    if is_child() {
        let said = code(ct::inspect(kernel, (array(), array_mut())).hints(Hints::new().num_warps(4)).ptx());
        assert_eq!(said, "nothing");
    }
}

/// On a machine with a GPU there is one too few all the same.
fn no_gpu() -> String {
    match Device::num_gpus() {
        0 => code(Device::gpu(0)),
        n => code(Device::gpu(n)),
    }
}

/// Returns the message for a driver library with nothing but an old version.
fn old_driver() -> String {
    let folder = std::env::temp_dir().join(format!("cutlet-old-driver-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let source = "#[unsafe(no_mangle)] pub extern \"C\" fn cuDriverGetVersion(v: &mut i32) -> u32 { *v = 12080; 0 }";
    std::fs::write(folder.join("driver.rs"), source).expect("a file");
    let mut rustc = rustc::command();
    rustc.current_dir(&folder).args(["--edition", "2024", "--crate-type", "cdylib", "-o", "libcuda.so.1", "driver.rs"]);
    assert!(rustc.status().expect("rustc").success());
    std::fs::copy(folder.join("libcuda.so.1"), folder.join("libcuda.so")).expect("a copy");
    let path = folder.to_str().expect("a name in UTF-8");
    let said = in_another_process("machine::first_gpu", &[("LD_LIBRARY_PATH", path)]);
    std::fs::remove_dir_all(&folder).expect("the folder");
    said
}

fn large_array() -> String {
    [code(Device::cpu().zeros::<f32, 2>([1 << 22, 1 << 22])), code(Device::cpu().zeros::<f32, 2>([1 << 40, 1 << 40]))]
        .join("\n")
}

fn odd_hint() -> String {
    fn kernel(c: ArrayMut<f32, 1>) {
        c.store(0, c.load(0, [64]) + 1.0);
    }
    let mut c = Device::cpu().zeros::<f32, 1>([64]).unwrap();
    let hints = Hints::new().num_warps(3);
    let launch = ct::Launch::new(1).hints(hints);
    let on_cpu = code(launch.launch(kernel, (&mut c,)));
    let as_ptx = code(ct::inspect(kernel, (array_mut(),)).hints(hints).ptx());
    format!("{on_cpu}\nas PTX: {as_ptx}")
}

/// Returns the output of a test of this program in a process of its own, with these variables.
pub fn in_another_process(test: &str, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", test, "--nocapture", "--test-threads", "1"]).env("CUTLET_MESSAGES_CHILD", "1");
    let output = command.envs(variables.iter().copied()).output().expect("this program again");
    String::from_utf8_lossy(&output.stderr).trim().to_string()
}

/// Returns true in a process of [`in_another_process`]. With the feature `log`, its warnings are
/// written as without.
pub fn is_child() -> bool {
    let is_child = std::env::var_os("CUTLET_MESSAGES_CHILD").is_some();
    #[cfg(feature = "log")]
    if is_child && log::set_logger(&StandardError).is_ok() {
        log::set_max_level(log::LevelFilter::Warn);
    }
    is_child
}

#[cfg(feature = "log")]
struct StandardError;

#[cfg(feature = "log")]
impl log::Log for StandardError {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        eprintln!("cutlet: {}", record.args());
    }

    fn flush(&self) {}
}

#[test]
fn first_device() {
    if is_child() {
        eprintln!("{}", code(Device::first()));
    }
}

#[test]
fn first_gpu() {
    if is_child() {
        eprintln!("{}", code(Device::gpu(0)));
    }
}

fn unknown_backend() -> String {
    let said = |name, value| in_another_process("machine::first_device", &[(name, value)]);
    [said("CUTLET_BACKEND", "cuda"), said("CUTLET_TARGET", "hopper")].join("\n")
}

/// The output of Rust for the result of `main`.
fn from_main() -> String {
    fn kernel(a: Array<f32, 1>) {
        let _ = a.load(0, [64]) + a.load(0, [32]);
    }
    let a = Device::cpu().zeros::<f32, 1>([64]).unwrap();
    match ct::launch(kernel, 1, (&a,)) {
        Ok(()) => "nothing".into(),
        Err(error) => format!("Error: {error:?}"),
    }
}

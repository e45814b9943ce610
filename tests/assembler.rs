//! Search for `tileiras`, its environment and arguments, and the cache of its cubins. Scripts
//! replace the real one. One test, because environment variables belong to the whole process.
#![cfg(unix)]

#[path = "../src/util/temp_dir.rs"]
mod temp_dir;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use cutlet as ct;
use cutlet::aot::Format;
use cutlet::backend::tileir::Assembler;
use cutlet::{ArraySpec, Error, Target};

/// Variables of the search.
const SEARCHED: [&str; 7] =
    ["CUTLET_TILEIRAS", "PATH", "CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "VIRTUAL_ENV", "CONDA_PREFIX"];

fn set(name: &str, value: impl AsRef<std::ffi::OsStr>) {
    // SAFETY: this program has one test, so no other thread reads the environment.
    unsafe { std::env::set_var(name, value) }
}

fn forget(name: &str) {
    // SAFETY: as above.
    unsafe { std::env::remove_var(name) }
}

/// Makes a `tileiras` that records its calls and its environment in its folder, and writes some
/// bytes as the cubin.
fn stand_in(folder: &Path) -> PathBuf {
    fs::create_dir_all(folder).expect("a folder");
    let path = folder.join("tileiras");
    let (calls, environment) = (folder.join("calls"), folder.join("environment"));
    let script = format!(
        "#!/bin/sh\necho \"$*\" >> '{}'\nenv > '{}'\n[ \"$1\" = --version ] && echo stand-in && exit 0\necho cubin > \"$3\"\n",
        calls.display(),
        environment.display()
    );
    fs::write(&path, script).expect("a script");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a program");
    path
}

fn calls(of: &Path) -> Vec<String> {
    let text = fs::read_to_string(of.with_file_name("calls")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn scale(x: ct::Array<f32, 1>, y: ct::ArrayMut<f32, 1>, factor: i32) {
    y.store([ct::bid(0)], x.load([ct::bid(0)], [16]) * factor as f32);
}

fn cubin(factor: i32) -> ct::Result<Vec<u8>> {
    cubin_with(factor, ct::Hints::new())
}

fn cubin_with(factor: i32, hints: ct::Hints) -> ct::Result<Vec<u8>> {
    let x = ArraySpec::<f32, 1>::new([64]);
    let (args, target) = ((x, x.mutable(), ct::Constant(factor)), "sm_100".parse::<Target>().expect("a target"));
    Ok(ct::Launch::new(1).hints(hints).export(scale, args, target, Format::Cubin)?.bytes)
}

#[test]
fn the_assembler() -> ct::Result<()> {
    let root = temp_dir::TemporaryFolder::new().expect("a folder");
    let at = |name: &str| root.path().join(name);
    SEARCHED.iter().for_each(|name| forget(name));
    set("PATH", "/usr/bin:/bin");
    set("CUTLET_CACHE_DIR", at("cache"));

    // Not found: the error names every searched location and the fix.
    for (name, folder) in [("CUDA_PATH", "toolkit"), ("VIRTUAL_ENV", "python")] {
        set(name, at(folder));
    }
    fs::create_dir_all(at("python/lib/python3.11")).expect("a folder");
    let error = cubin(1).expect_err("no assembler").to_string();
    for part in [
        "CUTLET_TILEIRAS",
        "the folders of PATH",
        "toolkit/bin",
        "python3.11/site-packages/nvidia/cu13/bin",
        "pip install",
    ] {
        assert!(error.contains(part), "{part} in {error}");
    }

    // From the last place to the first, each before the ones that are already there.
    let path_of = |found: &Assembler| found.path().to_path_buf();
    let mut expected = stand_in(&at("python/lib/python3.11/site-packages/nvidia/cu13/bin"));
    assert_eq!(path_of(&Assembler::find()?), expected);
    expected = stand_in(&at("toolkit/bin"));
    assert_eq!(path_of(&Assembler::find()?), expected);
    expected = stand_in(&at("on-path"));
    set("PATH", format!("{}:/usr/bin:/bin", at("on-path").display()));
    assert_eq!(path_of(&Assembler::find()?), expected);
    let named = stand_in(&at("named"));
    set("CUTLET_TILEIRAS", &named);
    assert_eq!(path_of(&Assembler::find()?), named);
    assert_eq!(path_of(&Assembler::at(&expected)), expected);

    // It gets nothing of the environment that could mislead it.
    set("CUDA_HOME", "/nowhere");
    set("SOMETHING", "else");
    set("TMPDIR", root.path());
    assert_eq!(cubin(2)?, b"cubin\n");
    let environment = fs::read_to_string(named.with_file_name("environment")).expect("what it saw");
    assert!(environment.contains("PATH=") && environment.contains("TMPDIR="), "{environment}");
    assert!(!environment.contains("CUDA_HOME") && !environment.contains("SOMETHING"), "{environment}");

    // It is called once for a kernel; later the cubin is in the cache, also if there is no
    // assembler any more.
    let assembled = |list: &[String]| list.iter().filter(|call| call.contains("--gpu-name=sm_100")).count();
    assert_eq!(assembled(&calls(&named)), 1);
    assert_eq!(cubin(2)?, b"cubin\n");
    assert_eq!(assembled(&calls(&named)), 1);
    assert_eq!(cubin(3)?, b"cubin\n");
    assert_eq!(assembled(&calls(&named)), 2);

    // Hints become arguments, and are a part of the key of the cache.
    let none = ct::Hints::new();
    for (count, hints, flags) in [
        (3, none.line_info(true), " --lineinfo"),
        (4, none.opt_level(1), " --opt-level=1"),
        (5, none.opt_level(0).line_info(true), " --opt-level=0 --lineinfo"),
        (6, none.device_debug(true), " --opt-level=0 --device-debug"),
        (7, none.memcheck(true), " --sanitize=memcheck"),
        // These are its defaults.
        (7, none.opt_level(3).line_info(false), " --sanitize=memcheck"),
    ] {
        assert_eq!(cubin_with(3, hints)?, b"cubin\n");
        let calls = calls(&named);
        let last = calls.iter().rfind(|call| call.contains("--gpu-name")).expect("a call");
        assert!(last.ends_with(&format!(".tilebc{flags}")), "{hints:?}: {last}");
        assert_eq!(assembled(&calls), count, "{hints:?}");
    }
    for name in ["CUTLET_TILEIRAS", "CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV"] {
        forget(name);
    }
    set("PATH", "/usr/bin:/bin");
    assert_eq!(cubin(3)?, b"cubin\n");
    assert!(matches!(cubin(4), Err(Error::NoDevice(_))));

    // An invalid path does not start a search in other folders.
    set("CUTLET_TILEIRAS", at("missing"));
    set("PATH", format!("{}:/usr/bin:/bin", at("on-path").display()));
    let error = cubin(5).expect_err("no such file").to_string();
    assert!(error.contains("missing") && error.contains("no file"), "{error}");
    Ok(())
}

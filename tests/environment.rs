//! Effects of environment variables. One test, because they belong to the whole process.

use std::collections::BTreeSet;
use std::path::Path;

use cutlet as ct;

fn scale(x: ct::Array<f32, 1>, y: ct::ArrayMut<f32, 1>, factor: f32) {
    y.store([ct::bid(0)], x.load([ct::bid(0)], [16]) * factor);
}

/// `f32` is no constant (it has no equality); its bits are.
fn scale_bits(x: ct::Array<f32, 1>, y: ct::ArrayMut<f32, 1>, bits: u32) {
    scale(x, y, f32::from_bits(bits));
}

fn set(name: &str, value: &str) {
    // SAFETY: this program has one test, so no other thread reads the environment.
    unsafe { std::env::set_var(name, value) }
}

fn names(folder: &Path) -> BTreeSet<String> {
    let files = std::fs::read_dir(folder).unwrap();
    files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
}

/// Machine code in a bundle and of exported PTX, where the assemblers of `scripts/tools` are.
fn machine_code_goes_along() -> ct::Result<()> {
    let (spec, ampere) = (ct::ArraySpec::<f32, 1>::new([1 << 20]), ct::Target::SM_80);
    let exported = ct::export(scale_bits, (spec, spec.mutable(), ct::Constant(7)), ampere, ct::aot::Format::Ptx)?;
    let mut bundler = ct::aot::Bundler::new([ampere, "sm_100".parse().expect("a target")]).with_machine_code();
    bundler.add(scale_bits, (spec, spec.mutable(), ct::Constant(7u32)))?;
    set("CUTLET_PTXAS", "/nowhere/ptxas");
    let error = exported.assemble(ampere).expect_err("no assembler");
    assert!(matches!(error, ct::Error::NoDevice(_)) && error.to_string().contains("CUTLET_PTXAS"), "{error}");
    let error = bundler.finish().expect_err("no assembler");
    assert!(matches!(error, ct::Error::NoDevice(_)), "{error}");
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools/bin");
    if tools.join("ptxas").is_file() && tools.join("tileiras").is_file() {
        set("CUTLET_PTXAS", tools.join("ptxas").to_str().unwrap());
        set("CUTLET_TILEIRAS", tools.join("tileiras").to_str().unwrap());
        assert!(exported.assemble(ampere)?.starts_with(b"\x7FELF"));
        let error = exported.assemble(ct::Target { arch: 75, accelerated: false });
        assert!(matches!(error, Err(ct::Error::Compile { stage: "ptxas", .. })));
        let bundle = bundler.finish()?;
        assert_eq!(bundle.to_string().matches("; machine code, ").count(), 2, "{bundle}");
        // SAFETY: these are the bytes of a bundle.
        let back = unsafe { ct::aot::Bundle::from_bytes(&bundle.to_bytes()) }?;
        assert_eq!(back.to_string(), bundle.to_string());
        set("CUTLET_TILEIRAS", "");
    }
    set("CUTLET_PTXAS", "");
    Ok(())
}

/// Returns the result of a search for the least pause, and whether it was found earlier.
fn tune(name: &str, all: &[u64]) -> ct::Result<(u64, bool)> {
    let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(5)).cache_as(name);
    let tuned = tuner.run(ct::Device::cpu(), &mut (), all.to_vec(), |(), &micros| {
        std::thread::sleep(std::time::Duration::from_micros(micros));
        Ok(())
    })?;
    Ok((*tuned.best(), tuned.is_cached()))
}

/// A file has the code that a launch would run: for one tile block, if registers do not suffice for
/// more.
#[cfg(unix)]
fn the_assembler_determines_the_exported_version() -> ct::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let (spec, target) = (ct::ArraySpec::<f32, 1>::new([1 << 20]), "sm_89".parse().expect("a target"));
    let exported = || {
        let file = ct::export(scale_bits, (spec, spec.mutable(), ct::Constant(7)), target, ct::aot::Format::Ptx)?;
        Ok::<bool, ct::Error>(String::from_utf8_lossy(&file.bytes).contains(".minnctapersm 1\n"))
    };
    let script = std::env::temp_dir().join(format!("cutlet-ptxas-{}", std::process::id()));
    for (spilled, for_one) in [(0, false), (8, true)] {
        let said = format!("0 bytes stack frame, {spilled} bytes spill stores, {spilled} bytes spill loads");
        std::fs::write(&script, format!("#!/bin/sh\necho '{said}' >&2\n")).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        set("CUTLET_PTXAS", script.to_str().unwrap());
        assert_eq!(exported()?, for_one, "{said}");
    }
    set("CUTLET_PTXAS", "/nowhere/ptxas");
    assert!(!exported()?, "without an assembler the estimate decides");
    set("CUTLET_PTXAS", "");
    std::fs::remove_file(&script).unwrap();
    Ok(())
}

#[cfg(not(unix))]
fn the_assembler_determines_the_exported_version() -> ct::Result<()> {
    Ok(())
}

#[test]
fn variables() -> ct::Result<()> {
    set("CUTLET_BACKEND", "cpu");
    let device = ct::Device::first()?;
    assert_eq!(device, ct::Device::cpu());
    set("CUTLET_BACKEND", "gpu");
    let error = ct::Device::first().unwrap_err().to_string();
    assert!(error.contains("expected cpu, ptx or tileir"), "{error}");
    set("CUTLET_BACKEND", "ptx");
    assert_eq!(ct::Device::first().is_ok(), ct::Device::num_gpus() > 0);

    let folder = std::env::temp_dir().join(format!("cutlet-dump-{}", std::process::id()));
    set("CUTLET_DUMP", folder.to_str().unwrap());
    let x = device.full([32], 2.0f32)?;
    let mut y = device.zeros([32])?;
    for factor in [2.0f32, 3.0, 2.0] {
        ct::launch(scale_bits, 2, (&x, &mut y, ct::Constant(factor.to_bits())))?;
        assert_eq!(y.to_vec()?, [2.0 * factor; 32]);
    }
    let files = names(&folder);
    assert_eq!(files.len(), 2, "one for each specialization: {files:?}");
    for name in &files {
        assert!(name.starts_with("scale_bits-") && name.ends_with(".ir"), "{name}");
        let text = std::fs::read_to_string(folder.join(name)).unwrap();
        assert!(text.contains("entry @scale_bits") && text.contains("store_view_tko"), "{text}");
    }
    // Only kernels with these names.
    for (filter, dumped) in [("other, scale", 0), ("*_bits", 1), ("nothing,scale*", 1), ("", 1)] {
        std::fs::remove_dir_all(&folder).unwrap();
        std::fs::create_dir_all(&folder).unwrap();
        set("CUTLET_DUMP_FILTER", filter);
        let factor = 10.0 + filter.len() as f32;
        ct::launch(scale_bits, 2, (&x, &mut y, ct::Constant(factor.to_bits())))?;
        assert_eq!(names(&folder).len(), dumped, "{filter}");
    }
    std::fs::remove_dir_all(&folder).unwrap();

    // A folder that cannot be made is an error that names it; without the variable the launch
    // works.
    set("CUTLET_DUMP", "/proc/cutlet/dump");
    let refused = ct::launch(scale_bits, 2, (&x, &mut y, ct::Constant(1.0f32.to_bits())));
    assert!(matches!(&refused, Err(ct::Error::Io { path, .. }) if path.contains("/proc/cutlet")), "{refused:?}");
    set("CUTLET_DUMP", "");
    ct::launch(scale_bits, 2, (&x, &mut y, ct::Constant(1.0f32.to_bits())))?;
    assert_eq!(y.to_vec()?, [2.0; 32]);

    the_assembler_determines_the_exported_version()?;
    machine_code_goes_along()?;

    // Winners of searches, by name, device and configurations.
    set("CUTLET_CACHE_DIR", folder.to_str().unwrap());
    assert_eq!(tune("a", &[6000, 300, 3000])?, (300, false));
    assert_eq!(tune("a", &[6000, 300, 3000])?, (300, true));
    assert_eq!(tune("b", &[6000, 300, 3000])?, (300, false));
    assert_eq!(tune("a", &[6000, 3000])?, (3000, false));
    assert_eq!(ct::cache::cache_entries().len(), 3);
    let (bytes, statistics) = (ct::cache::bytes(), ct::cache::statistics());
    assert!(bytes > 0 && bytes <= ct::cache::limit_bytes() && ct::cache::folder().as_deref() == Some(folder.as_ref()));
    assert!(statistics.found >= 1 && statistics.missed >= 3 && statistics.written >= 3, "{statistics:?}");
    assert_eq!((ct::cache::evict(bytes), ct::cache::entries().len()), (0, 3));
    // Damage is a miss.
    for entry in ct::cache::cache_entries() {
        std::fs::write(&entry.path, b"damaged").unwrap();
    }
    assert_eq!(tune("a", &[6000, 300, 3000])?, (300, false));
    assert!(ct::cache::clear() > 0 && ct::cache::entries().is_empty());
    assert_eq!(tune("a", &[6000, 300, 3000])?, (300, false));
    set("CUTLET_CACHE", "off");
    assert_eq!(tune("a", &[6000, 300, 3000])?, (300, false));
    assert_eq!(ct::cache::cache_entries(), []);
    std::fs::remove_dir_all(&folder).unwrap();
    Ok(())
}

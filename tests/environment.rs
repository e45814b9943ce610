//! What environment variables do. One test, because they belong to the whole process.

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
    assert_eq!(files.len(), 2, "one for each specialisation: {files:?}");
    for name in &files {
        assert!(name.starts_with("scale_bits-") && name.ends_with(".ir"), "{name}");
        let text = std::fs::read_to_string(folder.join(name)).unwrap();
        assert!(text.contains("entry @scale_bits") && text.contains("store_view_tko"), "{text}");
    }
    // Of the kernels with these names alone.
    for (filter, dumped) in [("other, scale", 0), ("*_bits", 1), ("nothing,scale*", 1), ("", 1)] {
        std::fs::remove_dir_all(&folder).unwrap();
        std::fs::create_dir_all(&folder).unwrap();
        set("CUTLET_DUMP_FILTER", filter);
        let factor = 10.0 + filter.len() as f32;
        ct::launch(scale_bits, 2, (&x, &mut y, ct::Constant(factor.to_bits())))?;
        assert_eq!(names(&folder).len(), dumped, "{filter}");
    }
    std::fs::remove_dir_all(&folder).unwrap();

    // A folder that cannot be made is an error that names it; without the wish the launch works.
    set("CUTLET_DUMP", "/proc/cutlet/dump");
    let refused = ct::launch(scale_bits, 2, (&x, &mut y, ct::Constant(1.0f32.to_bits())));
    assert!(matches!(&refused, Err(ct::Error::Io { path, .. }) if path.contains("/proc/cutlet")), "{refused:?}");
    set("CUTLET_DUMP", "");
    ct::launch(scale_bits, 2, (&x, &mut y, ct::Constant(1.0f32.to_bits())))?;
    assert_eq!(y.to_vec()?, [2.0; 32]);
    Ok(())
}

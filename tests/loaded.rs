//! Modules that were made elsewhere, launched on device arrays.

use cutlet as ct;
use cutlet::ir::Module;
use cutlet::prelude::*;
use cutlet::{ByPointer, Error, RawPtr};

/// Bytecode of a sum of vectors, by cuTile Python.
const SUM: &[u8] = include_bytes!("data/golden/vadd_13.1.tilebc");

/// A module that takes addresses alone: `y[i] = a * x[i]` for a block of 16.
const SCALE: &str = "
entry @scale(%x: tile<ptr<f32>>, %y: tile<ptr<f32>>, %a: tile<f32>) {
  %bx, %by, %bz = get_tile_block_id : tile<i32>
  %sixteen = constant <i32: 16> : tile<i32>
  %start = muli %bx, %sixteen : tile<i32>
  %0 = reshape %start : tile<i32> -> tile<1xi32>
  %1 = broadcast %0 : tile<1xi32> -> tile<16xi32>
  %2 = iota : tile<16xi32>
  %at = addi %1, %2 : tile<16xi32>
  %3 = reshape %x : tile<ptr<f32>> -> tile<1xptr<f32>>
  %4 = broadcast %3 : tile<1xptr<f32>> -> tile<16xptr<f32>>
  %from = offset %4, %at : tile<16xptr<f32>>, tile<16xi32> -> tile<16xptr<f32>>
  %value, %t0 = load_ptr_tko weak %from : tile<16xptr<f32>> -> tile<16xf32>, token
  %5 = reshape %a : tile<f32> -> tile<1xf32>
  %6 = broadcast %5 : tile<1xf32> -> tile<16xf32>
  %7 = mulf %value, %6 : tile<16xf32>
  %8 = reshape %y : tile<ptr<f32>> -> tile<1xptr<f32>>
  %9 = broadcast %8 : tile<1xptr<f32>> -> tile<16xptr<f32>>
  %to = offset %9, %at : tile<16xptr<f32>>, tile<16xi32> -> tile<16xptr<f32>>
  %t1 = store_ptr_tko weak %to, %7 token = %t0 : tile<16xptr<f32>>, tile<16xf32> -> token
  return
}
entry @other() { return }
";

fn devices() -> Vec<ct::Device> {
    let gpus = (0..ct::Device::num_gpus().min(1)).filter_map(|n| ct::Device::gpu(n).ok());
    std::iter::once(ct::Device::cpu()).chain(gpus).collect()
}

/// The devices, and on a GPU the available back ends.
fn launches() -> Vec<(ct::Device, ct::Launch<'static>)> {
    let mut launches = Vec::new();
    for device in devices() {
        launches.push((device, ct::Launch::new(1)));
        if device != ct::Device::cpu() {
            launches.push((device, ct::Launch::new(1).backend(ct::Backend::Ptx)));
        }
    }
    launches
}

#[test]
fn bytecode_of_cutile_python_runs_on_arrays() -> ct::Result<()> {
    let module = ct::backend::tileir::read(SUM)?;
    for (device, launch) in launches() {
        // It assumes extents of multiples of 16.
        let a = device.from_fn([5000 / 16 * 16], |[i]| i as f32)?;
        let b = device.full(a.shape(), 0.5f32)?;
        let mut c = device.zeros::<f32, 1>(a.shape())?;
        let sum = launch.load(&module, &module.entries[0].name, device)?;
        // SAFETY: the module reads the first two arrays and writes the third one, within their
        // extents.
        unsafe { sum.launch(5, (&a, &b, &mut c))? };
        assert!(c.to_vec()?.iter().enumerate().all(|(i, &x)| x == i as f32 + 0.5));
    }
    Ok(())
}

#[test]
fn modules_of_addresses_run_on_arrays() -> ct::Result<()> {
    let module = Module::parse("scale.mlir", SCALE).unwrap();
    for (device, launch) in launches() {
        let x = device.from_fn([64], |[i]| i as f32)?;
        let mut y = device.zeros::<f32, 1>([64])?;
        let scale = launch.load(&module, "scale", device)?;
        // SAFETY: four blocks of 16 are the 64 elements of both.
        unsafe { scale.launch(3, (ByPointer(&x), ByPointer(&mut y), 3.0f32))? };
        let address = RawPtr::<f32>::new(y.address() + 48 * 4);
        let from = x.slice(0, 48..64)?;
        // SAFETY: a block of 16, and no other work uses `y`.
        unsafe { scale.launch(1, (ByPointer(&from), address, 2.0f32))? };
        let wanted: Vec<f32> = (0..64).map(|i| i as f32 * if i < 48 { 3.0 } else { 2.0 }).collect();
        assert_eq!(y.to_vec()?, wanted);
    }
    Ok(())
}

#[test]
fn arguments_have_to_fit_the_parameters() -> ct::Result<()> {
    let module = Module::parse("scale.mlir", SCALE).unwrap();
    let device = ct::Device::cpu();
    let (x, mut y) = (device.full([64], 1.0f32)?, device.zeros::<f32, 1>([64])?);
    let line = line!() + 1;
    let Error::Argument(problem) = ct::load(&module, "scales", device).unwrap_err() else { panic!() };
    assert_eq!(problem.message, "the module has no entry `scales`; its entries: `scale`, `other`");
    assert_eq!(problem.location.map(|place| place.line), Some(line));
    let scale = ct::load(&module, "scale", device)?;
    assert_eq!((scale.name(), scale.device()), ("scale", device));
    // SAFETY (all): nothing runs.
    let message = |result: ct::Result<()>| match result {
        Err(Error::Argument(problem)) => problem.message,
        other => panic!("{other:?}"),
    };
    let counted = message(unsafe { scale.launch(1, (&x, &mut y, 1.0f32)) });
    let all = "tile<ptr<f32>>, tile<ptr<f32>>, tile<f32>";
    assert!(counted.starts_with(&format!("entry `scale` takes 3 parameters ({all}), and the arguments stand for 7 (")));
    let typed = message(unsafe { scale.launch(1, (ByPointer(&x), ByPointer(&mut y), 1.0f64)) });
    assert_eq!(
        typed,
        format!(
            "parameter 2 of entry `scale` is tile<f32>, and the arguments stand for tile<f64> there; all parameters: {all}"
        )
    );
    let bits = device.zeros::<i32, 1>([64])?;
    let pointed = message(unsafe { scale.launch(1, (ByPointer(&bits), ByPointer(&mut y), 1.0f32)) });
    assert!(
        pointed
            .starts_with("parameter 0 of entry `scale` is tile<ptr<f32>>, and the arguments stand for tile<ptr<i32>>")
    );
    // A number is no address, and no other number.
    assert!(message(unsafe { scale.launch(1, (7i64, ByPointer(&mut y), 1.0f32)) }).contains("tile<i64> there"));
    Ok(())
}

#[test]
fn the_interpreter_keeps_modules_inside_of_their_arrays() -> ct::Result<()> {
    let module = Module::parse("scale.mlir", SCALE).unwrap();
    let device = ct::Device::cpu();
    let (x, mut y) = (device.full([64], 1.0f32)?, device.zeros::<f32, 1>([40])?);
    let scale = ct::load(&module, "scale", device)?;
    // SAFETY: the interpreter finds that the third block leaves `y`, before anything is written
    // there.
    let outside = unsafe { scale.launch(3, (ByPointer(&x), ByPointer(&mut y), 1.0f32)) };
    assert!(matches!(outside, Err(Error::Execution(_))), "{outside:?}");
    Ok(())
}

#[test]
fn addresses_arrive_in_structs_lists_and_tuples() -> ct::Result<()> {
    struct Layer<P, S> {
        weights: P,
        scale: S,
    }
    ct::impl_kernel_args! { Layer<P, S> { weights, scale } }

    fn sum(layer: Layer<ct::Ptr<f32>, Scalar<f32>>, more: Vec<ct::Ptr<f32>>, y: ArrayMut<f32, 1>) {
        let at = ct::arange(0..8);
        // SAFETY: all addresses are of 8 elements.
        let first = unsafe { layer.weights.offset(at).load() };
        let all = more.iter().fold(first * layer.scale, |all, other| all + unsafe { other.offset(at).load() });
        y.store(0, all);
    }

    for device in devices() {
        let arrays: Vec<_> = (0..3).map(|n| device.full([8], n as f32 + 1.0)).collect::<ct::Result<_>>()?;
        let mut y = device.zeros::<f32, 1>([8])?;
        let layer = Layer { weights: RawPtr::<f32>::new(arrays[0].address()), scale: 10.0f32 };
        let more = arrays[1..].iter().map(ByPointer).collect::<Vec<_>>();
        ct::launch(sum, 1, (layer, more, &mut y))?;
        assert_eq!(y.to_vec()?, [15.0; 8]);
    }
    Ok(())
}

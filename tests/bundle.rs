//! Launches from a bundle on the device that is there: a GPU, or the host.

use cutlet as ct;
use cutlet::prelude::*;

fn product(a: Array<f16, 2>, b: Array<f16, 2>, c: ArrayMut<f32, 2>, [tm, tn, tk]: [usize; 3]) {
    let (i, j) = (ct::bid(0), ct::bid(1));
    ct::require!(a.extent(1).eq(b.extent(0)), "inner extents {} and {}", a.extent(1), b.extent(0));
    let sum = ct::fold(..a.num_tiles(1, [tm, tk]), ct::zeros::<f32, 2>([tm, tn]), |sum, k| {
        ct::mma(a.load([i, k], [tm, tk]), b.load([k, j], [tk, tn]), sum)
    });
    c.store([i, j], sum);
}

fn shifted(x: Array<f32, 1>, y: ArrayMut<f32, 1>, by: Scalar<f32>) {
    ct::assert!(by.lt(100.0), "by = {by}");
    y.store(ct::bid(0), x.load(ct::bid(0), [128]) + by);
}

const TILE: [usize; 3] = [64, 64, 32];

/// For the GPU that is there, and for older ones.
fn bundle(own: bool) -> ct::Result<ct::aot::Bundle> {
    let device = ct::Device::first()?;
    let mut bundler = ct::aot::Bundler::new(std::iter::once(ct::Target::SM_80).chain(device.target().filter(|_| own)));
    let (any, aligned) = (ct::ArraySpec::<f16, 2>::new([65, 65]).unaligned(), ct::ArraySpec::<f16, 2>::new([64, 64]));
    let results = [ct::ArraySpec::<f32, 2>::new([65, 65]).unaligned(), ct::ArraySpec::<f32, 2>::new([64, 64])];
    for (operand, result) in [any, aligned].into_iter().zip(results) {
        bundler.add(product, (operand, operand, result.mutable(), ct::Constant(TILE)))?;
    }
    let line = ct::ArraySpec::<f32, 1>::new([1001]).unaligned();
    bundler.add(shifted, (line, line.mutable(), 1.0f32))?;
    let bytes = bundler.finish()?.to_bytes();
    // SAFETY: these are the bytes of a bundle.
    unsafe { ct::aot::Bundle::from_bytes(&bytes) }
}

#[test]
fn products_are_those_of_a_launch_with_a_trace() -> ct::Result<()> {
    let device = ct::Device::first()?;
    for (own, bundle) in [(true, bundle(true)?), (false, bundle(false)?)] {
        for [m, n, k] in [[128, 192, 256], [100, 77, 33], [64, 64, 2000]] {
            let a = device.from_fn([m, k], |[i, j]| f16::from_f32(((i * 7 + j * 3) % 11) as f32 - 5.0))?;
            let b = device.from_fn([k, n], |[i, j]| f16::from_f32(((i * 5 + j) % 13) as f32 - 6.0))?;
            let (mut c, mut expected) = (device.zeros::<f32, 2>([m, n])?, device.zeros::<f32, 2>([m, n])?);
            let grid = [m.div_ceil(TILE[0]), n.div_ceil(TILE[1])];
            ct::launch(product, grid, (&a, &b, &mut expected, ct::Constant(TILE)))?;
            bundle.launch("product", grid, (&a, &b, &mut c, ct::Constant(TILE)))?;
            assert!(c.to_vec()? == expected.to_vec()?, "{own} {m} {n} {k}");
            let ((), (), made, ()) =
                bundle.launch("product", grid, (&a, &b, ct::NewArray::<f32, 2>::zeros([m, n]), ct::Constant(TILE)))?;
            assert!(made.to_vec()? == expected.to_vec()?);
            let error = bundle.launch("product", grid, (&a, &a, &mut c, ct::Constant(TILE))).map(drop);
            match error {
                Ok(()) => assert_eq!(m, k),
                Err(error) => assert!(error.to_string().contains("inner extents"), "{error}"),
            }
        }
    }
    Ok(())
}

#[test]
fn streams_graphs_and_empty_grids_work() -> ct::Result<()> {
    let (device, bundle) = (ct::Device::first()?, bundle(true)?);
    let stream = device.stream()?;
    let (x, mut y) = (device.full([1000], 1.0f32)?, device.zeros::<f32, 1>([1000])?);
    ct::Launch::new(8).stream(&stream).launch_from(&bundle, "shifted", (&x, &mut y, 2.0f32))?;
    assert_eq!(y.to_vec()?, [3.0; 1000]);
    let mut graph = ct::Graph::capture((x, y, 5.0f32), |(x, y, by)| {
        bundle.launch("shifted", 8, (&*x, &mut *y, *by))?;
        bundle.launch("shifted", 8, (&*y, &mut *x, *by)).map(drop)
    })?;
    graph.replay()?;
    graph.state_mut().2 = 1.0;
    graph.replay()?;
    let (x, mut y, _) = graph.into_state();
    assert_eq!(x.to_vec()?, [13.0; 1000]);
    let error = bundle.launch("shifted", 0, (&x, &mut y, 1.0f32)).expect_err("no blocks").to_string();
    assert!(error.contains("bundle.rs"), "{error}");
    let (none, mut nothing) = (device.zeros::<f32, 1>([0])?, device.zeros::<f32, 1>([0])?);
    bundle.launch("shifted", 0, (&none, &mut nothing, 1.0f32))?;
    Ok(())
}

#[test]
fn assertions_are_those_of_the_kernel() -> ct::Result<()> {
    let (device, bundle) = (ct::Device::first()?, bundle(true)?);
    let (x, mut y) = (device.full([1000], 1.0f32)?, device.zeros::<f32, 1>([1000])?);
    let launched = bundle.launch("shifted", 8, (&x, &mut y, 100.0f32)).map(drop);
    let error = launched.and_then(|()| device.synchronize()).expect_err("an assertion fails").to_string();
    assert!(error.contains("by = 100") && error.contains("bundle.rs"), "{error}");
    bundle.launch("shifted", 8, (&x, &mut y, 1.0f32))?;
    assert_eq!(y.to_vec()?, [2.0; 1000]);
    Ok(())
}

//! Work of launches, counted on the IR, against what the shapes say.

use cutlet as ct;
use cutlet::dtype::DType;
use cutlet::prelude::*;
use cutlet::{ArraySpec, Constant, Launch, f16};

type Outcome = Result<(), ct::Error>;

fn matmul(a: Array<f16, 2>, b: Array<f16, 2>, c: ArrayMut<f32, 2>, [tm, tn, tk]: [usize; 3]) {
    let (i, j) = (ct::bid(0), ct::bid(1));
    let acc = ct::for_each(..a.num_tiles(1, [tm, tk]), ct::zeros::<f32, 2>([tm, tn]), |k, acc| {
        ct::mma(a.load([i, k], [tm, tk]), b.load([k, j], [tk, tn]), acc)
    });
    c.store([i, j], acc);
}

#[test]
fn a_product_runs_through_its_loop() -> Outcome {
    let (m, n, k) = (256, 320, 192);
    let arguments = (ArraySpec::new([m, k]), ArraySpec::new([k, n]), ArraySpec::new([m, n]).mutable());
    let work = Launch::new([4, 5]).work(matmul, (arguments.0, arguments.1, arguments.2, Constant([64, 64, 32])))?;
    assert_eq!(work.products, [(DType::F16, 2.0 * (m * n * k) as f64)]);
    // Tiles are read again and again, memory only once.
    assert_eq!((work.read_bytes, work.written_bytes), ((2 * (m + n) * k) as f64, (4 * m * n) as f64));
    assert!(!work.is_guess);
    Ok(())
}

/// Rows of tiles with a stride of the number of blocks, each up to the diagonal.
fn triangle(x: Array<f32, 2>, y: ArrayMut<f32, 2>) {
    let rows = ct::range(ct::bid(0), x.num_tiles(0, [16, 16])).step(ct::num_blocks(0));
    ct::for_each(rows, (), |i, ()| {
        let sum = ct::for_each(..i + 1, ct::zeros::<f32, 2>([16, 16]), |j, sum| sum + x.load([i, j], [16, 16]));
        y.store((i, 0), sum);
    });
}

#[test]
fn loops_depend_on_block_and_outer_loop() -> Outcome {
    let tiles = 10;
    let (x, y) = (ArraySpec::new([16 * tiles, 16 * tiles]), ArraySpec::new([16 * tiles, 16]));
    for blocks in [1, 3, 4, 10] {
        let work = Launch::new(blocks).work(triangle, (x, y.mutable()))?;
        let tile_bytes = 16.0 * 16.0 * 4.0;
        assert_eq!(work.read_bytes, (tiles * (tiles + 1) / 2) as f64 * tile_bytes, "{blocks} blocks");
        assert_eq!(work.written_bytes, tiles as f64 * tile_bytes);
        assert!(!work.is_guess);
    }
    Ok(())
}

fn chosen_by_data(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
    ct::if_then(x.load_scalar([0]).gt(0.0), || y.store([0], ct::full::<f32, 1>([64], 1.0)));
}

#[test]
fn control_by_data_is_a_guess() -> Outcome {
    let work = Launch::new(1).work(chosen_by_data, (ArraySpec::new([1]), ArraySpec::new([64]).mutable()))?;
    assert!(work.is_guess);
    assert_eq!((work.read_bytes, work.written_bytes), (4.0, 128.0));
    Ok(())
}

#[test]
fn large_grids_are_sampled() -> Outcome {
    let tiles = 5000;
    let (x, y) = (ArraySpec::new([16 * tiles, 16]), ArraySpec::new([16 * tiles, 16]));
    fn copy(x: Array<f32, 2>, y: ArrayMut<f32, 2>) {
        y.store((ct::bid(0), 0), x.load((ct::bid(0), 0), [16, 16]));
    }
    let work = Launch::new(tiles).work(copy, (x, y.mutable()))?;
    let bytes = (tiles * 16 * 16 * 4) as f64;
    assert!((work.read_bytes / bytes - 1.0).abs() < 1e-9 && (work.written_bytes / bytes - 1.0).abs() < 1e-9);
    assert_eq!(Launch::new([0, 3]).work(copy, (x, y.mutable()))?, ct::Work::default());
    Ok(())
}

//! Work of launches, counted on the IR, compared with the shapes.

use cutlet as ct;
use cutlet::dtype::DType;
use cutlet::prelude::*;
use cutlet::{ArraySpec, Constant, Launch, f16};

type Outcome = Result<(), ct::Error>;

fn matmul(a: Array<f16, 2>, b: Array<f16, 2>, c: ArrayMut<f32, 2>, [tm, tn, tk]: [usize; 3]) {
    let (i, j) = (ct::bid(0), ct::bid(1));
    let acc = ct::fold(..a.num_tiles(1, [tm, tk]), ct::zeros::<f32, 2>([tm, tn]), |acc, k| {
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
    ct::fold(rows, (), |(), i| {
        let sum = ct::fold(..i + 1, ct::zeros::<f32, 2>([16, 16]), |sum, j| sum + x.load([i, j], [16, 16]));
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

/// A row of tiles a block, up to the diagonal; the other axis repeats that.
fn triangle_of_blocks(x: Array<f32, 2>, y: ArrayMut<f32, 2>, first: bool) {
    let i = if first { ct::bid(0) } else { ct::bid(0) % 32 };
    let sum = ct::fold(..i + 1, ct::zeros::<f32, 2>([16, 16]), |sum, j| sum + x.load([i, j], [16, 16]));
    y.store((ct::bid(0), ct::bid(1)), sum.exp());
}

#[test]
fn trip_counts_of_large_grids_are_exact_or_marked() -> Outcome {
    let tile = 16.0 * 16.0;
    let x = ArraySpec::new([16 * 32, 16 * 32]);
    // 32 positions decide, of 4096 blocks.
    let work = Launch::new([32, 128])
        .work(triangle_of_blocks, (x, ArraySpec::new([16 * 32, 16 * 128]).mutable(), Constant(true)))?;
    let sums = 32.0 * 33.0 / 2.0 * tile * 128.0;
    assert_eq!((work.elementwise, work.is_guess), (sums + 4096.0 * tile, false));
    // 4096 positions decide: a sample, which no period of the grid distorts.
    let work =
        Launch::new(4096).work(triangle_of_blocks, (x, ArraySpec::new([16 * 4096, 16]).mutable(), Constant(false)))?;
    assert!((work.elementwise / (sums + 4096.0 * tile) - 1.0).abs() < 0.02 && work.is_guess, "{}", work.elementwise);
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
    assert_eq!(Launch::new([0, 3]).work(copy, (x, y.mutable()))?, ct::inspect::Work::default());
    Ok(())
}

fn triple(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
    y.store(ct::bid(0), x.load(ct::bid(0), [256]) * 3.0);
}

/// Programs with `CUTLET_PROFILE` print the times of their launches at their end. This test is that
/// program, too.
#[test]
fn a_table_at_the_end() -> Outcome {
    const NAME: &str = "a_table_at_the_end";
    if std::env::var_os("CUTLET_PROFILE").is_some() {
        let device = ct::Device::cpu();
        let (x, mut y) = (device.full([1000], 2.0f32)?, device.zeros([1000])?);
        (0..3).try_for_each(|_| ct::launch(triple, 4, (&x, &mut y)))?;
        let compiled = ct::compile(triple, (&x, &mut y))?;
        compiled.launch(4, (&x, &mut y))?;
        let (a, b) = (device.full([64, 64], f16::ONE)?, device.full([64, 64], f16::ONE)?);
        let mut c = device.zeros([64, 64])?;
        return ct::launch(matmul, [2, 2], (&a, &b, &mut c, Constant([32, 32, 32])));
    }
    let said = |value: &str| {
        let program = std::env::current_exe().expect("this program");
        let mut command = std::process::Command::new(program);
        let output = command.args(["--exact", NAME, "--nocapture"]).env("CUTLET_PROFILE", value).output();
        let output = output.expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stderr).expect("text")
    };
    assert_eq!(said("0"), "");
    let text = said("1");
    let lines: Vec<Vec<&str>> = text.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0][..4], ["kernel", "device", "launches", "total"], "{text}");
    assert_eq!(lines.len(), 3, "{text}");
    let row = |name: &str| lines.iter().find(|line| line[0] == name).unwrap_or_else(|| panic!("no {name}:\n{text}"));
    let number = |cell: &str| cell.parse::<f64>().unwrap_or_else(|_| panic!("{cell} is no number:\n{text}"));
    for (name, launches) in [("triple", "4"), ("matmul", "1")] {
        let row = row(name);
        assert_eq!((row[1], row[2], row[9]), ("cpu", launches, "-"), "{text}");
        let [total, share, mean, least] = [3, 4, 5, 6].map(|column| number(row[column]));
        assert!(least <= mean && total > 0.0 && share <= 100.0, "{text}");
        assert!((total * 1e3 / number(launches) - mean).abs() < 1.0, "{text}");
    }
    // Both arrays of 4000 bytes, each time; the table has thousandths of a gigabyte.
    let (row, bytes) = (row("triple"), 4.0 * 8000.0);
    assert!((number(row[7]) - bytes / number(row[3]) / 1e6).abs() < 0.002, "{text}");
    Ok(())
}

#[test]
fn measured_launches_have_rates() -> Outcome {
    let device = ct::Device::cpu();
    let mut sets: Vec<_> =
        (0..3).map(|_| Ok((device.full([1000], 2.0f32)?, device.zeros([1000])?))).collect::<Result<_, ct::Error>>()?;
    let how = ct::Bench::new().warm_up(1).runs(4);
    let measured = Launch::new(4).bench(how, triple, sets.iter_mut().map(|(x, y)| (&*x, y)))?;
    assert_eq!(
        (measured.work().bytes(), measured.work().elementwise, measured.times().all().len()),
        (8000.0, 1024.0, 4)
    );
    let seconds = measured.times().median().as_secs_f64();
    assert_eq!(measured.bytes_per_second(), 8000.0 / seconds);
    assert_eq!(measured.flops_per_second(), 1024.0 / seconds);
    assert_eq!(measured.fraction_of_roofline(), None);
    // One launch before and four that count: each set had its turn.
    assert!(sets.iter().all(|(_, y)| y.to_vec().is_ok_and(|y| y.iter().all(|&y| y == 6.0))));
    let text = measured.to_string();
    assert!(text.starts_with("triple: ") && text.contains(" in 4 runs), ") && text.ends_with(" GB/s"), "{text}");
    let none: [(ct::DeviceView<'_, f32, 1>, ct::DeviceViewMut<'_, f32, 1>); 0] = [];
    assert!(Launch::new(4).bench(how, triple, none).is_err());
    let (x, y) = &mut sets[0];
    assert!(Launch::new(0).bench(how, triple, [(&*x, &mut *y)]).is_err());
    assert!(ct::bench(triple, 4, (&*x, &mut *y))?.times().all().len() == 20);
    Ok(())
}

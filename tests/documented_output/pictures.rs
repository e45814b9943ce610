//! Pictures in `docs/`: how a fragment of a product lies in the registers of a warp, and the roofline of an H200 with the
//! examples on it. Work is what the library counts in the kernels; rates are those of the table in `README.md`.

use std::path::Path;

use cutlet as ct;
use cutlet::layout::{local, spatial};
use cutlet::{ArraySpec, Constant, Launch};

use crate::examples;

/// Bytes and multiply-adds (f16, counted as two operations) of a second by the data sheet.
const MEMORY: f64 = 4.8e12;
const TENSOR: f64 = 989e12;

/// Powers of two of operations for a byte, and powers of ten of operations a second, that the picture shows.
const ACROSS: [f64; 2] = [-5.0, 11.0];
const UP: [f64; 2] = [10.5, 15.5];
const SIZE: [f64; 2] = [760.0, 420.0];
const MARGIN: [f64; 2] = [70.0, 40.0];

/// Where the name of each kernel stands beside its point.
const BESIDE: [(f64, f64, &str); 8] = [
    (8.0, 16.0, "start"),
    (8.0, 16.0, "start"),
    (8.0, 18.0, "start"),
    (-8.0, -4.0, "end"),
    (9.0, 6.0, "start"),
    (-8.0, 6.0, "end"),
    (0.0, 21.0, "middle"),
    (-8.0, 12.0, "end"),
];

/// A kernel on the roofline.
struct Point {
    name: &'static str,
    /// Operations for a byte.
    intensity: f64,
    /// Operations a second.
    rate: f64,
}

/// The last number of our column in the row of the README's table that begins so.
fn measured(row: &str) -> f64 {
    let page = include_str!("../../README.md");
    let line =
        page.lines().find(|line| line.starts_with(&format!("| {row}"))).unwrap_or_else(|| panic!("no row {row}"));
    let ours = line.split(" | ").nth(1).expect("our column");
    ours.split(';').next_back().and_then(|number| number.trim().parse().ok()).expect("a number")
}

fn points() -> ct::Result<Vec<Point>> {
    let vector = ArraySpec::<f32, 1>::new([1 << 27]);
    let (grid, tile) = ((1 << 27) / 1024, Constant(1024));
    let rows = ArraySpec::<f32, 2>::new([32768, 4096]);
    let columns = ArraySpec::<f32, 1>::new([4096]);
    let square = ArraySpec::<f32, 2>::new([8192, 8192]);
    let product = |n: usize| {
        let half = ArraySpec::<ct::f16, 2>::new([n, n]);
        let form = examples::matmul::Form { tile: [128, 128, 64], persistent: false, fast_sums: false };
        let kernel = examples::matmul::matmul::<ct::f16, ct::f16, f32, ct::f16>;
        Launch::new((n / 128) * (n / 128)).work(kernel, (half, half, half.mutable(), Constant(form)))
    };
    let heads = ArraySpec::<ct::f16, 4>::new([8, 16, 1024, 64]);
    let form = examples::attention::Form { tile: [128, 64, 64], group: 1, causal: false };
    let attention = Launch::new([8, 16, 8]).work(
        examples::attention::attention::<ct::f16>,
        (
            (heads, heads, heads),
            (heads.mutable(), None::<ct::ArraySpecMut<f32, 3>>),
            1.0f32,
            Constant(form),
        ),
    )?;
    let works = [
        (
            "vadd",
            "sum of vectors, f32",
            Launch::new(grid).work(examples::vadd::vadd, (vector, vector, vector.mutable(), tile))?,
        ),
        ("saxpy", "saxpy", Launch::new(grid).work(examples::saxpy::saxpy, (2.0f32, vector, vector.mutable(), tile))?),
        (
            "stencil",
            "five-point stencil",
            Launch::new([64, 512]).work(examples::stencil::stencil, (square, square.mutable(), Constant([16, 128])))?,
        ),
        (
            "softmax",
            "softmax of rows, f32, 32768",
            Launch::new(32768).work(examples::softmax::softmax, (rows, rows.mutable(), Constant(4096)))?,
        ),
        (
            "layernorm",
            "layer normalisation, f32, 32768",
            Launch::new(32768).work(
                examples::layernorm::layernorm,
                (rows, columns, columns, rows.mutable(), 1e-5f32, Constant(4096)),
            )?,
        ),
        ("matmul 4096³", "matrix product, f16, 4096³", product(4096)?),
        ("matmul 8192³", "matrix product, f16, 8192³", product(8192)?),
        ("attention", "attention, f16", attention),
    ];
    let point = |(name, row, work): (&'static str, &str, ct::inspect::Work)| {
        let operations = work.elementwise + work.product_flops();
        // Rates of products are operations a second already.
        let rate = match work.products.is_empty() {
            true => measured(row) * 1e9 * operations / work.bytes(),
            false => measured(row) * 1e12,
        };
        Point { name, intensity: operations / work.bytes(), rate }
    };
    Ok(works.into_iter().map(point).collect())
}

/// Where a kernel of this intensity and rate stands.
fn place(intensity: f64, rate: f64) -> [f64; 2] {
    let across = (intensity.log2() - ACROSS[0]) / (ACROSS[1] - ACROSS[0]);
    let up = (rate.log10() - UP[0]) / (UP[1] - UP[0]);
    [MARGIN[0] + across * (SIZE[0] - 2.0 * MARGIN[0]), SIZE[1] - MARGIN[1] - up * (SIZE[1] - 2.0 * MARGIN[1])]
}

fn text([x, y]: [f64; 2], anchor: &str, text: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>\n")
}

fn line([x0, y0]: [f64; 2], [x1, y1]: [f64; 2]) -> String {
    format!("<line x1=\"{x0:.1}\" y1=\"{y0:.1}\" x2=\"{x1:.1}\" y2=\"{y1:.1}\" stroke=\"#404040\"/>\n")
}

fn roofline() -> ct::Result<String> {
    let [width, height] = SIZE;
    let open = "<svg xmlns=\"http://www.w3.org/2000/svg\" font-family=\"sans-serif\" font-size=\"12\"";
    let mut svg = format!("{open} viewBox=\"0 0 {width} {height}\">\n");
    svg += &format!("<rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n");
    let title =
        "TFLOP/s on an H200; the line is what memory (4.8 TB/s) and tensor cores (f16, 989 TFLOP/s) give at most";
    svg += &text([8.0, 16.0], "start", title);
    for power in (ACROSS[0] as i32..=ACROSS[1] as i32).step_by(2) {
        let label = if power < 0 { format!("1/{}", 1 << -power) } else { format!("{}", 1 << power) };
        svg += &text([place(2f64.powi(power), 1e12)[0], height - 24.0], "middle", &label);
    }
    svg += &text([width / 2.0, height - 6.0], "middle", "operations for a byte of memory");
    for (rate, label) in [(1e11, "0.1"), (1e12, "1"), (1e13, "10"), (1e14, "100"), (1e15, "1000")] {
        svg += &text([MARGIN[0] - 8.0, place(1.0, rate)[1] + 4.0], "end", label);
    }
    let (least, most) = (2f64.powf(ACROSS[0]), 2f64.powf(ACROSS[1]));
    let ridge = place(TENSOR / MEMORY, TENSOR);
    svg += &line(place(least, MEMORY * least), ridge);
    svg += &line(ridge, place(most, TENSOR));
    for (index, Point { name, intensity, rate }) in points()?.into_iter().enumerate() {
        let [x, y] = place(intensity, rate);
        let part = 100.0 * rate / (MEMORY * intensity).min(TENSOR);
        svg += &format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"#c03020\"/>\n");
        let (right, down, anchor) = BESIDE[index];
        svg += &text([x + right, y + down], anchor, &format!("{name}: {part:.0} %"));
    }
    Ok(svg + "</svg>\n")
}

/// Is the picture in `docs/` this one? With `CUTLET_BLESS` it becomes it.
fn compare(name: &str, picture: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name);
    if std::env::var_os("CUTLET_BLESS").is_some() {
        std::fs::write(&path, picture).expect("the picture can be written");
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(there == picture, "{name} is another picture; CUTLET_BLESS=1 writes it");
}

#[test]
fn the_roofline_is_that_of_the_kernels() -> ct::Result<()> {
    compare("roofline.svg", &roofline()?);
    Ok(())
}

/// The accumulators of `mma.m16n8`: two rows of eight numbers a group of four threads.
#[test]
fn the_fragment_is_that_of_the_layouts() {
    compare("fragment.svg", &(local([2, 1]) * spatial([8, 4]) * local([1, 2])).to_svg());
}

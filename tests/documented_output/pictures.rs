//! Pictures in `docs/`: the fragment of a matrix multiplication in the registers of a warp, and the
//! roofline of an H200 with examples. The library counts the work of the kernels; rates are those
//! of `benches/compare/measured.tsv`.

use std::path::Path;

use cutlet as ct;
use cutlet::layout::{local, spatial};
use cutlet::{ArraySpec, Constant, Launch};

use crate::examples;

/// Bytes and operations (f16 and bf16) per second by the data sheet.
const MEMORY: f64 = 4.8e12;
const TENSOR: f64 = 989e12;

/// Ranges of the axes: powers of two of operations per byte, and powers of ten of operations per
/// second.
const X_RANGE: [f64; 2] = [-5.0, 13.0];
const Y_RANGE: [f64; 2] = [10.5, 15.5];
/// Size of the picture; left, right, top and bottom of the plot in it.
const SIZE: [f64; 2] = [820.0, 440.0];
const PLOT: [f64; 4] = [64.0, 560.0, 34.0, 392.0];

const STYLE: &str = "<style>
svg { --ground: #ffffff; --text: #1f2328; --muted: #59636e; --grid: #d1d9e0; --dot: #c2410c; }
@media (prefers-color-scheme: dark) {
  svg { --ground: #0d1117; --text: #f0f6fc; --muted: #9198a1; --grid: #3d444d; --dot: #f0883e; }
}
text { fill: var(--text); } .muted { fill: var(--muted); } .grid { stroke: var(--grid); } .roof { stroke: var(--text); stroke-width: 1.5; }
.dot { fill: var(--dot); } .number { fill: #ffffff; font-size: 9px; font-weight: bold; }
</style>
";

/// A kernel on the roofline.
struct Point {
    title: &'static str,
    /// Operations per byte.
    intensity: f64,
    /// Operations per second.
    rate: f64,
}

/// The measured rate of a row on an H200.
fn measured(name: &str) -> f64 {
    let rows = include_str!("../../benches/compare/measured.tsv");
    let start = format!("row\tH200\t{name}\t");
    let row = rows.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or_else(|| panic!("no row {name}"));
    row.split('\t').nth(1).and_then(|rate| rate.parse().ok()).expect("a number")
}

/// The date of the rows of an H200.
fn date() -> &'static str {
    let rows = include_str!("../../benches/compare/measured.tsv");
    let gpu = rows.lines().find(|line| line.starts_with("gpu\tH200\t")).expect("an H200");
    gpu.rsplit('\t').next().expect("a date")
}

/// The work of a square matrix multiplication.
fn square_product<T>(n: usize) -> ct::Result<ct::inspect::Work>
where
    T: ct::element::MmaInput<T, f32> + ct::element::CastTo<T>,
    f32: ct::element::CastTo<T>,
{
    let matrix = ArraySpec::<T, 2>::new([n, n]);
    let form = examples::matmul::Form { tile: [128, 128, 64], persistent: false, fast_sums: false };
    let kernel = examples::matmul::matmul::<T, T, f32, T>;
    Launch::new((n / 128) * (n / 128)).work(kernel, (matrix, matrix, matrix.mutable(), Constant(form)))
}

/// The work of full attention in bf16.
fn full_attention([batch, heads, length, size]: [usize; 4]) -> ct::Result<ct::inspect::Work> {
    let array = ArraySpec::<ct::bf16, 4>::new([batch, heads, length, size]);
    let form = examples::attention::Form { tile: [128, 64, size], group: 1, causal: false };
    Launch::new([length / 128, heads, batch]).work(
        examples::attention::attention::<ct::bf16>,
        ((array, array, array), (array.mutable(), None::<ct::ArraySpecMut<f32, 3>>), 1.0f32, Constant(form)),
    )
}

fn points() -> ct::Result<Vec<Point>> {
    let vector = ArraySpec::<f32, 1>::new([1 << 27]);
    let (grid, tile) = ((1 << 27) / 1024, Constant(1024));
    let rows = ArraySpec::<f32, 2>::new([32768, 4096]);
    let columns = ArraySpec::<f32, 1>::new([4096]);
    let square = ArraySpec::<f32, 2>::new([8192, 8192]);
    let works = [
        (
            "vector addition, f32",
            "vadd f32 134217728",
            Launch::new(grid).work(examples::vadd::vadd, (vector, vector, vector.mutable(), tile))?,
        ),
        (
            "saxpy, f32",
            "saxpy f32 134217728",
            Launch::new(grid).work(examples::saxpy::saxpy, (2.0f32, vector, vector.mutable(), tile))?,
        ),
        (
            "five-point stencil, f32",
            "stencil f32 8192 8192",
            Launch::new([64, 512]).work(examples::stencil::stencil, (square, square.mutable(), Constant([16, 128])))?,
        ),
        (
            "softmax, f32",
            "softmax f32 32768 4096",
            Launch::new(32768).work(examples::softmax::softmax, (rows, rows.mutable(), Constant(4096)))?,
        ),
        (
            "layer normalization, f32",
            "layernorm f32 32768 4096",
            Launch::new(32768).work(
                examples::layernorm::layernorm,
                (rows, columns, columns, rows.mutable(), 1e-5f32, Constant(4096)),
            )?,
        ),
        ("matmul, f16, 4096³", "matmul f16 4096 4096 4096", square_product::<ct::f16>(4096)?),
        ("matmul, bf16, 8192³", "matmul bf16 8192 8192 8192", square_product::<ct::bf16>(8192)?),
        ("attention, bf16, 64 per head", "attention bf16 4 32 4096 64 full", full_attention([4, 32, 4096, 64])?),
        ("attention, bf16, 128 per head", "attention bf16 4 32 4096 128 full", full_attention([4, 32, 4096, 128])?),
    ];
    let point = |(title, row, work): (&'static str, &str, ct::inspect::Work)| {
        let operations = work.elementwise + work.product_flops();
        // Rates of products are operations per second already.
        let rate = match work.products.is_empty() {
            true => measured(row) * 1e9 * operations / work.bytes(),
            false => measured(row) * 1e12,
        };
        Point { title, intensity: operations / work.bytes(), rate }
    };
    Ok(works.into_iter().map(point).collect())
}

/// Position of an intensity and a rate in the picture.
fn position(intensity: f64, rate: f64) -> [f64; 2] {
    let [left, right, top, bottom] = PLOT;
    let across = (intensity.log2() - X_RANGE[0]) / (X_RANGE[1] - X_RANGE[0]);
    let up = (rate.log10() - Y_RANGE[0]) / (Y_RANGE[1] - Y_RANGE[0]);
    [left + across * (right - left), bottom - up * (bottom - top)]
}

fn text([x, y]: [f64; 2], attributes: &str, text: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" {attributes}>{text}</text>\n")
}

fn line([x0, y0]: [f64; 2], [x1, y1]: [f64; 2], class: &str) -> String {
    format!("<line x1=\"{x0:.1}\" y1=\"{y0:.1}\" x2=\"{x1:.1}\" y2=\"{y1:.1}\" class=\"{class}\"/>\n")
}

/// Grid, labels and titles of both axes.
fn axes() -> String {
    let [left, right, top, bottom] = PLOT;
    let mut svg = String::new();
    for power in (X_RANGE[0] as i32..=X_RANGE[1] as i32).step_by(2) {
        let label = if power < 0 { format!("1/{}", 1 << -power) } else { format!("{}", 1 << power) };
        let x = position(2f64.powi(power), 1e12)[0];
        svg += &line([x, top], [x, bottom], "grid");
        svg += &text([x, bottom + 16.0], "text-anchor=\"middle\" class=\"muted\"", &label);
    }
    for (rate, label) in [(1e11, "0.1"), (1e12, "1"), (1e13, "10"), (1e14, "100"), (1e15, "1000")] {
        let y = position(1.0, rate)[1];
        svg += &line([left, y], [right, y], "grid");
        svg += &text([left - 8.0, y + 4.0], "text-anchor=\"end\" class=\"muted\"", label);
    }
    let middle = [(left + right) / 2.0, bottom + 36.0];
    svg += &text(middle, "text-anchor=\"middle\"", "operations per byte of memory");
    let turn = format!("text-anchor=\"middle\" transform=\"rotate(-90 16 {:.1})\"", (top + bottom) / 2.0);
    svg + &text([16.0, (top + bottom) / 2.0], &turn, "TFLOP/s")
}

fn roofline() -> ct::Result<String> {
    let [width, height] = SIZE;
    let open = "<svg xmlns=\"http://www.w3.org/2000/svg\" font-family=\"sans-serif\" font-size=\"12\"";
    let mut svg = format!("{open} viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\n{STYLE}");
    svg += "<rect width=\"100%\" height=\"100%\" fill=\"var(--ground)\"/>\n";
    let title = format!("Roofline of an H200: memory 4.8 TB/s, tensor cores 989 TFLOP/s; measured {}", date());
    svg += &text([12.0, 20.0], "font-size=\"13\" font-weight=\"bold\"", &title);
    svg += &axes();
    let (least, most) = (2f64.powf(X_RANGE[0]), 2f64.powf(X_RANGE[1]));
    let ridge = position(TENSOR / MEMORY, TENSOR);
    svg += &line(position(least, MEMORY * least), ridge, "roof");
    svg += &line(ridge, position(most, TENSOR), "roof");
    svg += &text([PLOT[1] + 20.0, PLOT[2] + 14.0], "font-weight=\"bold\"", "kernel, part of the roof");
    for (index, Point { title, intensity, rate }) in points()?.into_iter().enumerate() {
        let part = 100.0 * rate / (MEMORY * intensity).min(TENSOR);
        let legend = [PLOT[1] + 28.0, PLOT[2] + 34.0 + 22.0 * index as f64];
        for [x, y] in [position(intensity, rate), legend] {
            svg += &format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"7\" class=\"dot\"/>");
            svg += &text([x, y + 3.2], "text-anchor=\"middle\" class=\"number\"", &(index + 1).to_string());
        }
        svg += &text([legend[0] + 14.0, legend[1] + 4.0], "font-size=\"11\"", &format!("{title}: {part:.0} %"));
    }
    Ok(svg + "</svg>\n")
}

/// Compares a picture with the file in `docs/`; `CUTLET_BLESS` writes the file.
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

//! The table of `docs/speed.md` about forms of operands, and how each travels on sm_80 and sm_90a.
//!
//! Each form is the left operand of a product in a loop. The table shows the remarks about its
//! load. `CUTLET_BLESS=1 cargo test --test documented_output` writes the table.

use std::process::Command;

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{ArraySpec, Constant, Target};

/// Set in the process whose standard error is read.
const ASKED: &str = "CUTLET_SHOWN_FORMS";

const PAGE: &str = include_str!("../../docs/speed.md");
const TARGETS: [Target; 2] = [Target::SM_80, Target::SM_90A];

/// Arrays and numbers that operands are made of, in one iteration.
struct Inputs {
    /// A matrix, and the same as bytes.
    x: Array<f16, 2>,
    bytes: Array<i8, 2>,
    /// Images: number, rows, columns, channels. Pages: number, rows, columns.
    images: Array<f16, 4>,
    pages: Array<f16, 3>,
    /// Numbers of rows or of pages.
    list: Array<i32, 1>,
    /// Position of the tile block, of the iteration, and a number known at run time.
    i: Scalar<i32>,
    k: Scalar<i32>,
    at: Scalar<i32>,
}

/// A form: how it is written, and the operand of `[128, 64]`.
struct Form {
    text: &'static str,
    line: u32,
    operand: fn(&Inputs) -> Tile<f16, 2>,
}

macro_rules! form {
    ($inputs:ident, $operand:expr) => {
        Form { text: stringify!($operand), line: line!(), operand: |$inputs| $operand }
    };
}

#[rustfmt::skip]
const FORMS: [Form; 17] = [
    form!(v, v.x.load((v.i, v.k), [128, 64])),
    form!(v, v.x.load((ct::at(v.at), v.k), [128, 64])),
    form!(v, v.x.load((v.i, ct::at(v.at)), [128, 64])),
    form!(v, v.x.load((v.list.load_scalar(v.k), 0), [128, 64])),
    form!(v, v.x.slice(0, v.at..v.at + 100).load((0, v.k), [128, 64])),
    form!(v, v.images.load((v.i, 0, 0, v.k), [2, 8, 8, 64]).reshape([128, 64])),
    form!(v, v.images.load((v.i, ct::at(v.at), ct::at(v.at), v.k), [2, 8, 8, 64]).reshape([128, 64])),
    form!(v, v.images.load((v.i, ct::at(v.at), ct::at(v.at), v.k), [1, 16, 8, 64]).reshape([128, 64])),
    form!(v, v.images.load((v.i, v.k, ct::at(v.at), 0), [1, 1, 128, 64]).reshape([128, 64])),
    form!(v, v.images.load((v.i, v.k, 0, 0), [8, 2, 8, 64]).permute([1, 0, 2, 3]).reshape([128, 64])),
    form!(v, v.pages.load((v.k, v.i, 0), [2, 128, 32]).permute([1, 0, 2]).reshape([128, 64])),
    form!(v, v.x.load((ct::at(v.list.load(v.i, [128])), v.k), [128, 64])),
    form!(v, v.x.load((ct::at(v.list.load(v.k, [128])), 0), [128, 64])),
    form!(v, ct::cat([0, 1, 2, 3].map(|page| v.pages.load((v.list.load_scalar(v.k * 4 + page), 0, 0), [1, 32, 64]).squeeze(0)), 0)),
    form!(v, v.x.gather((v.list.load(v.i, [128]).unsqueeze(1), ct::span(v.k * 64, 64)))),
    form!(v, v.x.load((v.i, v.k), [128, 64]) * 0.5),
    form!(v, v.bytes.load((v.i, v.k), [128, 64]).cast()),
];

/// Matrix products with the operand of a form.
fn product(
    (x, bytes, images, pages): (Array<f16, 2>, Array<i8, 2>, Array<f16, 4>, Array<f16, 3>),
    (list, w): (Array<i32, 1>, Array<f16, 2>),
    y: ArrayMut<f32, 2>,
    at: Scalar<i32>,
    form: usize,
) {
    let i = ct::bid(0);
    let sum = ct::fold(..w.num_tiles(0, [64, 128]), ct::zeros::<f32, 2>([128, 128]), |sum, k| {
        let inputs = Inputs { x, bytes, images, pages, list, i, k, at };
        ct::mma((FORMS[form].operand)(&inputs), w.load((k, 0), [64, 128]), sum)
    });
    y.store((i, 0), sum);
}

/// In a process of its own, for [`table`]: generates the code of all forms if the variable requests
/// it.
#[test]
fn generate_requested_forms() -> ct::Result<()> {
    if std::env::var_os(ASKED).is_none() {
        return Ok(());
    }
    let x = ArraySpec::<f16, 2>::new([4096, 4096]);
    let bytes = ArraySpec::<i8, 2>::new([4096, 4096]);
    let images = ArraySpec::<f16, 4>::new([64, 64, 64, 4096]);
    let pages = ArraySpec::<f16, 3>::new([4096, 128, 64]);
    let list = ArraySpec::<i32, 1>::new([4096]);
    let y = ArraySpec::<f32, 2>::new([4096, 128]).mutable();
    for (number, form) in FORMS.iter().enumerate() {
        for target in TARGETS {
            eprintln!("form {}", form.line);
            let arguments = ((x, bytes, images, pages), (list, x), y, 5, Constant(number));
            ct::inspect(product, arguments).target(target).ptx()?;
        }
    }
    Ok(())
}

/// Returns the rows of the table.
fn table() -> String {
    let mut program = Command::new(std::env::current_exe().expect("the program has a place"));
    let program = program.args(["--exact", "operand_forms::generate_requested_forms", "--nocapture"]);
    let program = program.env("CUDA_VISIBLE_DEVICES", "").env("CUTLET_PTXAS", "/none");
    let output = program.env(ASKED, "1").env("CUTLET_REMARKS", "1").output().expect("the program starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    // The ways of the operand's load, for each form and target.
    let mut ways: Vec<(u32, String)> = Vec::new();
    for line in text.lines() {
        if let Some(number) = line.strip_prefix("form ") {
            ways.push((number.parse().expect("a line"), String::new()));
            continue;
        }
        let Some((_, rest)) = line.split_once("tests/documented_output/operand_forms.rs:") else { continue };
        let (number, rest) = rest.split_once(':').expect("a line and a column");
        let (_, what) = rest.split_once(": ").expect("a remark");
        let Some((form, way)) = ways.last_mut() else { continue };
        // The load of a list is no operand.
        let Some(what) = what.strip_prefix("load ").filter(|what| !what.contains(" i32: ")) else { continue };
        if number.parse() == Ok(*form) && way.is_empty() {
            *way = what.split_once(": ").expect("a way").1.replace('|', "/");
        }
    }
    let mut rows = String::from("| operand | on sm_80 | on sm_90a |\n|---|---|---|\n");
    for (form, [(_, ampere), (_, hopper)]) in FORMS.iter().zip(ways.as_chunks().0) {
        let text = form.text.replace("v.", "").replace("\n", " ");
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        rows += &format!("| `{}` | {ampere} | {hopper} |\n", text.replace('|', "\\|"));
    }
    rows
}

#[test]
fn the_page_shows_how_operands_travel() {
    const BEGIN: &str = "<!-- operand forms -->\n";
    const END: &str = "<!-- end of operand forms -->";
    let (before, rest) = PAGE.split_once(BEGIN).expect("the page has the table");
    let (shown, after) = rest.split_once(END).expect("the end of the table");
    let said = table();
    if shown == said {
        return;
    }
    assert!(std::env::var_os("CUTLET_BLESS").is_some(), "said is\n{said}\nand the page shows\n{shown}");
    let page = format!("{before}{BEGIN}{said}{END}{after}");
    std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/speed.md"), page).expect("the page can be written");
}

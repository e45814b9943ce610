//! Equality of the output in pages and the output of the library: remarks in `docs/tutorial.md`,
//! the message of the first mistake in `README.md`, pictures in `docs/`.
//!
//! A page shows a kernel in a block of Rust, and below it, in a block of text, the remarks about
//! its code. Places are lines of the block, as if it were `src/main.rs`.
//! `CUTLET_BLESS=1 cargo test --test documented_output` writes the current output into the
//! tutorial, for a person to read.

#[path = "../../benches/kernels/measure/examples.rs"]
mod examples;
mod kernels;
mod operand_forms;
mod pictures;

use std::process::Command;

use cutlet as ct;
use cutlet::{ArraySpec, Constant, Target};

/// Set in the process whose standard error is read.
const ASKED: &str = "CUTLET_SHOWN_REMARKS";

const PAGE: &str = include_str!("../../docs/tutorial.md");
const KERNELS: &str = include_str!("kernels.rs");

/// Kernels of the page, in order.
const NAMES: [&str; 8] =
    ["vadd", "transpose", "softmax", "column_sums", "embedding", "matmul", "attention", "attention_fast"];

/// Generates the code of all kernels; with `CUTLET_REMARKS=1` remarks about each are printed.
fn generate() -> ct::Result<()> {
    let (vector, matrix) = (ArraySpec::<f32, 1>::new([1 << 20]), ArraySpec::<f32, 2>::new([4096, 4096]));
    let half = ArraySpec::<ct::f16, 2>::new([4096, 4096]);
    let heads = ArraySpec::<ct::f16, 3>::new([16, 1024, 64]);
    let target = Target::SM_90A;
    ct::inspect(kernels::vadd, (vector, vector, vector.mutable(), Constant(1024))).target(target).ptx()?;
    ct::inspect(kernels::transpose, (matrix, matrix.mutable(), Constant([64, 64]))).target(target).ptx()?;
    ct::inspect(kernels::softmax, (matrix, matrix.mutable(), Constant(4096))).target(target).ptx()?;
    let sums = ArraySpec::<f32, 1>::new([4096]).mutable();
    ct::inspect(kernels::column_sums, (matrix, sums, Constant([64, 64]))).target(target).ptx()?;
    let ids = ArraySpec::<i32, 1>::new([1024]);
    let out = ArraySpec::<ct::f16, 2>::new([1024, 4096]).mutable();
    ct::inspect(kernels::embedding, (half, ids, out, Constant(2048))).target(target).ptx()?;
    ct::inspect(kernels::matmul, (half, half, half.mutable(), Constant([128, 128, 64]))).target(target).ptx()?;
    let arguments = (heads, heads, heads, heads.mutable(), Constant([128, 64, 64]));
    ct::inspect(kernels::attention, arguments).target(target).ptx()?;
    ct::inspect(kernels::attention_fast, arguments).target(target).ptx()?;
    Ok(())
}

/// In a process of its own, for [`remarks`]: generates code if the variable requests it.
#[test]
fn generate_requested_kernels() -> ct::Result<()> {
    if std::env::var_os(ASKED).is_some() { generate() } else { Ok(()) }
}

/// The remarks about each kernel, places as on the page.
fn remarks() -> Vec<String> {
    let mut program = Command::new(std::env::current_exe().expect("the program has a place"));
    let program = program.args(["--exact", "generate_requested_kernels", "--nocapture", "--test-threads", "1"]);
    // The result is independent of a GPU and an assembler.
    let program = program.env("CUDA_VISIBLE_DEVICES", "").env("CUTLET_PTXAS", "/none");
    let output = program.env(ASKED, "1").env("CUTLET_REMARKS", "1").output().expect("the program starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let mut all: Vec<String> = Vec::new();
    for line in text.lines() {
        match line.starts_with("  ") {
            false if NAMES.iter().any(|name| line.starts_with(&format!("{name}: "))) => all.push(format!("{line}\n")),
            true if !all.is_empty() => {
                let last = all.len() - 1;
                all[last] += &format!("{}\n", on_page(line, NAMES[last]));
            }
            _ => {}
        }
    }
    assert_eq!(all.len(), NAMES.len(), "{text}");
    all
}

/// The text of a kernel, and the number of its first line in the file.
fn kernel(name: &str) -> (&'static str, usize) {
    let start = KERNELS.find(&format!("pub fn {name}(")).expect("a kernel of the file") + "pub ".len();
    let end = start + KERNELS[start..].find("\n}\n").expect("its end") + 3;
    (&KERNELS[start..end], KERNELS[..start].lines().count())
}

/// Returns the starts of the block of Rust with this kernel on the page, and of the kernel.
fn shown(name: &str) -> (usize, usize) {
    let at =
        PAGE.find(kernel(name).0).unwrap_or_else(|| panic!("the page has no kernel {name} as it is in kernels.rs"));
    let block = PAGE[..at].rfind("```rust\n").expect("in a block of Rust") + "```rust\n".len();
    (block, at)
}

/// A remark with the line that its place has on the page.
fn on_page(remark: &str, name: &str) -> String {
    let Some((_, rest)) = remark.split_once("tests/documented_output/kernels.rs:") else { return remark.to_string() };
    let (line, rest) = rest.split_once(':').expect("a line and a column");
    let (block, at) = shown(name);
    let before = PAGE[block..at].lines().count();
    let line = line.parse::<usize>().expect("a number") + 1 + before - kernel(name).1;
    format!("  src/main.rs:{line}:{rest}")
}

#[test]
fn the_tutorial_shows_the_current_remarks() {
    let mut page = PAGE.to_string();
    let mut wrong = String::new();
    for (name, said) in NAMES.iter().zip(remarks()) {
        let after = page.find(kernel(name).0).expect("found before");
        let start = after + page[after..].find("```text\n").expect("remarks below the kernel") + "```text\n".len();
        let end = start + page[start..].find("```").expect("their end");
        if page[start..end] != said {
            wrong += &format!("{said}\nand the page shows\n{}\n", &page[start..end]);
            page.replace_range(start..end, &said);
        }
    }
    if std::env::var_os("CUTLET_BLESS").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/tutorial.md"), page)
            .expect("the page can be written");
    } else {
        assert!(wrong.is_empty(), "said is\n{wrong}");
    }
}

/// The remarks that the tables of the tutorial explain are in the listings above them, number by
/// number.
#[test]
fn the_tutorial_explains_what_it_shows() {
    let mut explained = 0;
    for name in NAMES {
        let after = &PAGE[PAGE.find(kernel(name).0).expect("a kernel of the page")..];
        let section = after.split("\n## ").next().expect("the rest");
        let (listing, rest) =
            section.split_once("```text\n").and_then(|(_, rest)| rest.split_once("```")).expect("remarks");
        let table = rest.split("| remark | meaning |\n|---|---|\n").nth(1).expect("a table").split("\n\n").next();
        for row in table.expect("rows").lines() {
            let cell = row.split('|').nth(1).expect("a cell");
            for remark in cell.split('`').skip(1).step_by(2) {
                assert!(
                    remark.split('…').all(|part| listing.contains(part)),
                    "{name}: `{remark}` is not in\n{listing}"
                );
                explained += 1;
            }
        }
    }
    assert!(explained > 20, "{explained}");
}

/// The first block of a page that opens with these words.
fn block<'a>(page: &'a str, opening: &str) -> &'a str {
    let start =
        page.find(opening).unwrap_or_else(|| panic!("there is no block that opens with {opening}")) + opening.len();
    page[start..].split("```").next().expect("the rest")
}

/// The kernels of `docs/matmul.md` are those of the example, which checks them.
#[test]
fn the_steps_are_those_of_the_example() {
    let example = include_str!("../../examples/matmul_steps.rs").replace("pub fn", "fn");
    let blocks = include_str!("../../docs/matmul.md").split("```rust\n").skip(1);
    let mut kernels = 0;
    for block in blocks.filter_map(|rest| rest.split("```").next()) {
        for kernel in block.split("\n\n").filter(|part| part.starts_with("fn ")) {
            assert!(example.contains(kernel.trim_end()), "the example has no kernel as on the page:\n{kernel}");
            kernels += 1;
        }
    }
    assert_eq!(kernels, 8);
}

/// The program of the README has the kernel and a launch. With the change that the README names,
/// its message is that of the README.
#[test]
fn the_readme_shows_the_first_mistake() -> ct::Result<()> {
    let page = include_str!("../../README.md");
    let program = block(page, "```rust\n");
    assert!(program.contains(kernel("vadd").0), "the README's first kernel is not that of kernels.rs");
    let right = "a.load(i, [tile]) + b.load(i, [tile])";
    let line = program.lines().position(|line| line.contains(right)).expect("the line of the sum") + 1;
    let device = ct::Device::cpu();
    let (a, mut c) = (device.full([64], 1.0f32)?, device.zeros([64])?);
    let error = ct::launch(kernels::vadd_mistaken, 1, (&a, &a, &mut c, Constant(64))).expect_err("a mistake");
    let said = format!("Error: {error:?}");
    let (before, rest) = said.split_once("tests/documented_output/kernels.rs:").expect("a place");
    let (_, rest) = rest.split_once(':').expect("a line and a column");
    // In the program a tile has 1024 elements.
    let said = format!("{before}src/main.rs:{line}:{rest}").replace("[64]", "[1024]").replace("[32]", "[512]");
    assert_eq!(block(page, "```text\n").trim_end(), said.trim_end());
    Ok(())
}

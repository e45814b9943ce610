//! Output of kernels: numbers of every type in every form, tiles, long texts, loops and branches.
//! The text is written to the standard output of the process, so each kernel runs in a process of
//! its own: this program with [`CHILD`] set.

use std::fmt::Write as _;
use std::process::{Command, ExitCode};

use anyhow::{Result, bail, ensure};
use cutlet as ct;
use cutlet::prelude::*;

use crate::harness::{Session, Suite};

/// Names the case and the way in a process that prints.
const CHILD: &str = "CUTLET_SUITE_PRINT";

/// A kernel that prints, how many blocks run it, and its output lines, in any order.
struct Case {
    name: &'static str,
    launch: fn(Session) -> Result<()>,
    lines: fn() -> Vec<String>,
}

const CASES: [Case; 5] = [
    Case { name: "print/hello", launch: |s| s.launch(hello, [3, 2], ()), lines: hello_lines },
    Case { name: "print/forms", launch: |s| s.launch(forms, [1], (-7, 3.5f32)), lines: form_lines },
    Case { name: "print/tiles", launch: |s| s.launch(tiles, [1], ()), lines: tile_lines },
    Case { name: "print/large_tiles", launch: |s| s.launch(large_tiles, [1], ()), lines: large_lines },
    Case { name: "print/control", launch: |s| s.launch(control, [4], ()), lines: control_lines },
];

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    for case in &CASES {
        suite.test(case.name, |session| match session.only_compiles() {
            true => (case.launch)(session),
            false => in_a_process(case, session),
        });
    }
}

/// Prints and ends, if this process is there for that.
pub fn child() -> Option<ExitCode> {
    let wanted = std::env::var(CHILD).ok()?;
    let (name, way) = wanted.split_once(' ')?;
    let case = CASES.iter().find(|case| case.name == name)?;
    let result = way_of(way).and_then(case.launch);
    if let Err(error) = &result {
        eprintln!("{error:#}");
    }
    Some(if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn way_of(way: &str) -> Result<Session> {
    Ok(match way {
        "cpu" => Session::Run(ct::Device::cpu()),
        "gpu" => Session::Run(ct::Device::gpu(0)?),
        "gpu_tileir" => Session::RunTileIr(ct::Device::gpu(0)?),
        target => Session::InterpretTileIr(target.parse().map_err(anyhow::Error::msg)?),
    })
}

fn in_a_process(case: &Case, session: Session) -> Result<()> {
    let way = match session {
        Session::Run(device) if device.target().is_none() => "cpu".to_owned(),
        Session::Run(_) => "gpu".to_owned(),
        Session::RunTileIr(_) => "gpu_tileir".to_owned(),
        Session::InterpretTileIr(target) => target.to_string(),
        Session::Interpret(_) | Session::Assemble(..) | Session::AssembleTileIr(_) => bail!("nothing is printed there"),
    };
    let wanted = format!("{} {way}", case.name);
    let output = Command::new(std::env::current_exe()?).env(CHILD, wanted).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    ABBREVIATED.set(!way.starts_with("gpu"));
    let (mut lines, mut expected): (Vec<&str>, _) = (text.lines().collect(), (case.lines)());
    lines.sort_unstable();
    expected.sort_unstable();
    ensure!(lines == expected, "printed\n{}\ninstead of\n{}", lines.join("\n"), expected.join("\n"));
    Ok(())
}

fn hello() {
    let (x, y) = (ct::bid(0), ct::bid(1));
    ct::println!(
        "block ({x}, {y}) of {} by {}: 100 % of {:>5} äöü \u{1F600}",
        ct::num_blocks(0),
        ct::num_blocks(1),
        "it"
    );
}

fn hello_lines() -> Vec<String> {
    let all = (0..3).flat_map(|x| (0..2).map(move |y| (x, y)));
    all.map(|(x, y)| format!("block ({x}, {y}) of 3 by 2: 100 % of    it äöü \u{1F600}")).collect()
}

/// Every element type, and every form, of values that are known only at run time.
fn forms(n: Scalar<i32>, x: Scalar<f32>) {
    ct::println!("{n} {:5}|{n:<5}|{n:05}|{n:+} {n:x} {n:#X} {n:o}", n);
    ct::println!("{} {} {} {}", n.cast::<i8>(), n.cast::<u8>(), n.cast::<i16>(), n.cast::<u16>());
    ct::println!("{} {} {} {:x}", n.cast::<u32>(), n.cast::<i64>(), n.cast::<u64>(), n.cast::<i64>());
    ct::println!("{:x} {:#010x} {} {}", n.cast::<i8>(), n.cast::<u16>(), n.lt(0), n.gt(0));
    ct::println!("{x} {x:.2} {x:9.3}|{x:<9.3}|{x:09.3}|{x:+} {x:.1e} {:E}", x);
    ct::println!("{} {} {} {}", x.cast::<f16>(), x.cast::<bf16>(), x.cast::<tf32>(), x.cast::<f64>());
    ct::println!("{} {} {}", x.cast::<f8e4m3fn>(), x.cast::<f8e5m2>(), x.cast::<f8e8m0fnu>());
    let (inf, tiny) = (x / (x - 3.5), x.cast::<f64>() * 1e-300);
    ct::println!("{inf} {} {tiny} {:.1e} {}", -inf, tiny, x * 1e10);
    let (width, nested) = (7, format_args!("[{x:.1}]").to_string());
    ct::print(format_args!("{x:width$} {0} {0} {nested} ", n));
    ct::print!("{}\n", ct::Device::cpu());
}

fn form_lines() -> Vec<String> {
    let n = -7i32;
    let mut lines = vec![
        format!("{n} {n:5}|{n:<5}|{n:05}|{n:+} {n:x} 0X{:X} {n:o}", n),
        "-7 249 -7 65529".to_owned(),
        format!("{} -7 {} {:x}", n as u32, i64::from(n) as u64, i64::from(n)),
        "f9 0x0000fff9 1 0".to_owned(),
        "3.5 3.50     3.500|3.500    |00003.500|+3.5 3.5e+00 3.500000E+00".to_owned(),
        "3.5 3.5 3.5 3.5".to_owned(),
        "3.5 3.5 2".to_owned(),
        "inf -inf 3.5e-300 3.5e-300 3.5e+10".to_owned(),
    ];
    lines.push(format!("    3.5 -7 -7 [f32, known when the kernel runs] {}", ct::Device::cpu()));
    // The value is formatted before the message begins.
    lines
}

/// The numbers of a tile of this shape, as they are printed.
fn nested(shape: &[usize], number: &dyn Fn(usize) -> String) -> String {
    fn level(shape: &[usize], first: usize, number: &dyn Fn(usize) -> String) -> String {
        let Some((&extent, inner)) = shape.split_first() else { return number(first) };
        let row: usize = inner.iter().product();
        let elided = ABBREVIATED.get() && extent > 6;
        let shown = (0..extent).filter(|&i| !elided || !(3..extent - 3).contains(&i));
        let mut all: Vec<String> = shown.map(|i| level(inner, first + i * row, number)).collect();
        if elided {
            all.insert(3, "...".into());
        }
        format!("[{}]", all.join(", "))
    }
    let abbreviated = ABBREVIATED.get();
    ABBREVIATED.set(abbreviated && shape.iter().product::<usize>() > 1000);
    let text = level(shape, 0, number);
    ABBREVIATED.set(abbreviated);
    text
}

thread_local! {
    /// Large tiles are expected in the form of the cpu back end.
    static ABBREVIATED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

fn count(n: usize) -> Tile<i32, 1> {
    ct::arange(0..n)
}

/// Tiles of all ranks up to 128 elements, several in one text, and texts of more numbers than a
/// call of `printf` has.
fn tiles() {
    let i = ct::bid(0);
    ct::println!("a {} {:3}", count(1), count(4) + i);
    ct::println!("b {:.1} | {}", count(16).cast::<f32>().reshape([2, 8]) / 4.0, count(16).reshape([2, 1, 8]));
    ct::println!("c {} {}", count(32).cast::<f64>(), count(8).cast::<i64>() * 1_000_000_000_000);
    ct::println!("d {:x}", count(128).reshape([4, 2, 16]).cast::<u8>() + 200);
    ct::println!("e {} {:?}", count(8).reshape([4, 2]).permute([1, 0]), count(64).reshape([64, 1]).gt(31));
    ct::println!("f {}", count(64).sum(0));
    let all: Vec<Scalar<i32>> = (0..70).map(|k| i + k).collect();
    ct::println!("g {}", all.iter().map(|k| format!("{k:2}")).collect::<Vec<_>>().len());
    for chunk in [&all[..33], &all[33..]] {
        ct::println!("h {} {} {} {}", chunk[0], chunk[1], chunk[2], chunk[31]);
    }
}

fn tile_lines() -> Vec<String> {
    let plain = |i: usize| i.to_string();
    let mut lines = vec!["a [0] [  0,   1,   2,   3]".to_owned()];
    let quarters = nested(&[2, 8], &|i| format!("{:.1}", i as f32 / 4.0));
    lines.push(format!("b {quarters} | {}", nested(&[2, 1, 8], &plain)));
    let large = nested(&[8], &|i| if i == 0 { "0".into() } else { format!("{i}000000000000") });
    lines.push(format!("c {} {large}", nested(&[32], &plain)));
    lines.push(format!("d {}", nested(&[4, 2, 16], &|i| format!("{:x}", (i + 200) as u8))));
    let turned = nested(&[2, 4], &|i| (i % 4 * 2 + i / 4).to_string());
    lines.push(format!("e {turned} {}", nested(&[64, 1], &|i| u8::from(i > 31).to_string())));
    lines.extend(["f [2016]", "g 70", "h 0 1 2 31", "h 33 34 35 64"].map(str::to_owned));
    lines
}

/// Tiles that go to the one thread in parts.
fn large_tiles() {
    let i = ct::bid(0);
    ct::println!("a {}", count(256) + i);
    ct::println!("b {} and {:.1} after", count(2048).reshape([2, 16, 64]), count(1024).cast::<f32>().reshape([512, 2]));
    ct::println!("c {}", (count(512).reshape([8, 64]) * 3).permute([1, 0]));
    ct::println!("d {}", count(4096).cast::<i64>().reshape([4096, 1]));
    // Every thread has all of it.
    ct::println!("e {}", ct::full::<i32, 2>([16, 16], i + 5));
}

fn large_lines() -> Vec<String> {
    let plain = |i: usize| i.to_string();
    let tenths = nested(&[512, 2], &|i| format!("{i}.0"));
    vec![
        format!("a {}", nested(&[256], &plain)),
        format!("b {} and {tenths} after", nested(&[2, 16, 64], &plain)),
        format!("c {}", nested(&[64, 8], &|i| (3 * (i % 8 * 64 + i / 8)).to_string())),
        format!("d {}", nested(&[4096, 1], &plain)),
        format!("e {}", nested(&[16, 16], &|_| "5".into())),
    ]
}

/// From loops and branches, with tiles that live on.
fn control() {
    let block = ct::bid(0);
    let sum = ct::fold(..3, count(16), |sum, k| {
        ct::println!("{block} {k}: {}", sum.sum(0));
        ct::if_then((block + k).eq(3), || ct::println!("{block} {k}: {}", sum * 2));
        sum + k
    });
    ct::if_else(block.lt(2), || ct::println!("{block} low {sum}"), || ct::println!("{block} high"));
}

fn control_lines() -> Vec<String> {
    let mut lines = Vec::new();
    for block in 0..4 {
        let mut added = 0;
        for k in 0..3 {
            lines.push(format!("{block} {k}: [{}]", 120 + 16 * added));
            if block + k == 3 {
                lines.push(format!("{block} {k}: {}", nested(&[16], &|i| (2 * (i + added)).to_string())));
            }
            added += k;
        }
        let mut last = String::new();
        let _ = match block < 2 {
            true => write!(last, "{block} low {}", nested(&[16], &|i| (i + added).to_string())),
            false => write!(last, "{block} high"),
        };
        lines.push(last);
    }
    lines
}

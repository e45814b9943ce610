//! The user's lines in the code: every instruction at its source line, and the same instructions as
//! without. Levels of optimization: the same values.

use anyhow::{Context, Result, ensure};
use cutlet as ct;
use cutlet::prelude::*;

use crate::harness::{Session, Suite};
use crate::ptxas;

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    suite.test("lines/elementwise", elementwise);
    suite.test("lines/product", product);
    suite.test("lines/levels", levels);
}

/// PTX without its lines.
pub fn without_lines(ptx: &str) -> String {
    let named = |line: &&str| !line.starts_with(".file ") && !line.trim_start().starts_with(".loc ");
    ptx.split_inclusive('\n').filter(named).collect()
}

/// The line of [`roots`] itself.
const ROOTS: u32 = line!() + 2;

fn roots(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
    let tile = x.load(ct::bid(0), [1024]);
    let root = tile.sqrt();
    let total = root.sum(0);
    let sine = (root + total).sin();
    y.store(ct::bid(0), sine);
}

/// The line of [`multiply`] itself.
const MULTIPLY: u32 = line!() + 2;

fn multiply(a: Array<f16, 2>, b: Array<f16, 2>, c: ArrayMut<f32, 2>) {
    let sum = ct::fold(..a.num_tiles(1, [64, 32]), ct::zeros::<f32, 2>([64, 64]), |sum, k| {
        let left = a.load((ct::bid(0), k), [64, 32]);
        let right = b.load((k, ct::bid(1)), [32, 64]);
        ct::mma(left, right, sum)
    });
    c.store((ct::bid(0), ct::bid(1)), sum);
}

/// Instructions of machine code and their source lines, in order.
type Lined = Vec<(String, u32)>;

/// Instructions of PTX and their lines, by the text.
fn in_text(ptx: &str) -> Result<Lined> {
    let file = ptx.lines().find(|line| line.starts_with(".file ") && line.ends_with("lines.rs\"")).context("a file")?;
    let mark = format!(".loc {} ", file.split(' ').nth(1).context("a number")?);
    let (mut lined, mut here) = (Vec::new(), 0);
    for line in ptx.lines().map(str::trim) {
        match line.strip_prefix(&mark) {
            Some(place) => here = place.split(' ').next().context("a line")?.parse()?,
            None if line.starts_with(".loc ") => here = 0,
            None => lined.push((line.to_owned(), here)),
        }
    }
    Ok(lined)
}

/// Instructions of machine code and their lines, by the assembler's tables; `None` without a
/// disassembler. The same instructions as of the text without lines.
fn in_code(ptx: &str, target: &str) -> Result<Option<Lined>> {
    let disassembled = |text: &str, option: &str, how: &[&str]| ptxas::disassembled(text, target, option, how);
    let Some(plain) = disassembled(&without_lines(ptx), "-O3", &["-c"])? else { return Ok(None) };
    ensure!(Some(plain) == disassembled(ptx, "-lineinfo", &["-c"])?, "lines change the machine code");
    let Some(text) = disassembled(ptx, "-lineinfo", &["-c", "-g"])? else { return Ok(None) };
    let (mut lined, mut here) = (Vec::new(), 0);
    for line in text.lines().map(str::trim) {
        if let Some((_, place)) = line.split_once("//## File \"") {
            let (file, number) = place.split_once("\", line ").context("a line")?;
            here = if file.ends_with("lines.rs") { number.parse()? } else { 0 };
        } else if let Some((_, instruction)) = line.split_once("*/ ") {
            lined.push((instruction.trim().to_owned(), here));
        }
    }
    Ok(Some(lined))
}

/// Checks that all instructions with this text are from these lines, and that each line has one.
fn come_from(lined: &Lined, part: &str, lines: &[u32]) -> Result<()> {
    let found: Vec<&(String, u32)> = lined.iter().filter(|(text, _)| text.contains(part)).collect();
    ensure!(found.iter().all(|(_, line)| lines.contains(line)), "{part} is not of lines {lines:?}: {found:?}");
    let missing: Vec<&u32> = lines.iter().filter(|&&line| !found.iter().any(|found| found.1 == line)).collect();
    ensure!(missing.is_empty(), "no {part} is of lines {missing:?}: {found:?}");
    Ok(())
}

fn elementwise(session: Session) -> Result<()> {
    let x = session.array(&[4.0f32; 2048], [2048])?;
    let mut y = session.unwritten::<f32, 1>([2048])?;
    let hints = ct::Hints::new().line_info(true);
    session.launch_with(hints, roots, [2], (&x, &mut y))?;
    if let Session::Run(_) = session {
        let expected = 2050f64.sin();
        ensure!(y.to_vec()?.iter().all(|&y| (f64::from(y) - expected).abs() < 1e-4), "not {expected}");
    }
    let Session::Assemble(target, _) = session else { return Ok(()) };
    let ptx = ct::inspect(roots, (&x, &mut y)).target(target).hints(hints).ptx()?;
    let text = in_text(&ptx)?;
    come_from(&text, "ld.global", &[ROOTS + 1])?;
    come_from(&text, "sqrt.", &[ROOTS + 2])?;
    come_from(&text, "shfl.", &[ROOTS + 3])?;
    come_from(&text, "mul.rn.f32", &[ROOTS + 4])?;
    come_from(&text, "st.global", &[ROOTS + 5])?;
    let Some(mut code) = in_code(&ptx, &target.to_string())? else { return Ok(()) };
    // Routines of ptxas follow the end.
    code.truncate(code.iter().position(|(text, _)| text == "EXIT ;").context("an end")?);
    come_from(&code, "LDG.", &[ROOTS + 1])?;
    come_from(&code, "MUFU.RSQ", &[ROOTS + 2])?;
    come_from(&code, "SHFL.", &[ROOTS + 3])?;
    come_from(&code, "STG.", &[ROOTS + 5])
}

fn product(session: Session) -> Result<()> {
    let ones = vec![f16::ONE; 128 * 128];
    let (a, b) = (session.array(&ones, [128, 128])?, session.array(&ones, [128, 128])?);
    let mut c = session.unwritten::<f32, 2>([128, 128])?;
    let hints = ct::Hints::new().line_info(true);
    session.launch_with(hints, multiply, [2, 2], (&a, &b, &mut c))?;
    if let Session::Run(_) = session {
        ensure!(c.to_vec()?.iter().all(|&c| c == 128.0), "not 128");
    }
    let Session::Assemble(target, _) = session else { return Ok(()) };
    let ptx = ct::inspect(multiply, (&a, &b, &mut c)).target(target).hints(hints).ptx()?;
    let (text, loads) = (in_text(&ptx)?, [MULTIPLY + 2, MULTIPLY + 3]);
    come_from(&text, "mma", &[MULTIPLY + 4])?;
    let Some(code) = in_code(&ptx, &target.to_string())? else { return Ok(()) };
    if target.arch == 80 {
        come_from(&text, "cp.async.cg", &loads)?;
        come_from(&code, "LDGSTS", &loads)?;
        come_from(&code, "HMMA", &[MULTIPLY + 4])?;
        come_from(&code, "STG", &[MULTIPLY + 6])?;
    } else if target.arch == 90 {
        // (ptxas knows no lines of HGMMA.)
        come_from(&code, "UTMALDG", &loads)?;
        come_from(&code, "UTMASTG", &[MULTIPLY + 6])?;
    }
    Ok(())
}

/// Every level of the assembler, and code for debuggers.
fn levels(session: Session) -> Result<()> {
    let levels = (0..4).map(|level| ct::Hints::new().opt_level(level));
    for hints in levels.chain([ct::Hints::new().device_debug(true)]) {
        let ones = vec![f16::ONE; 128 * 128];
        let (a, b) = (session.array(&ones, [128, 128])?, session.array(&ones, [128, 128])?);
        let mut c = session.unwritten::<f32, 2>([128, 128])?;
        match (session, hints.opt_level) {
            (Session::Assemble(target, _), Some(level)) => {
                let ptx = ct::inspect(multiply, (&a, &b, &mut c)).target(target).hints(hints).ptx()?;
                ptxas::machine_code(&ptx, &target.to_string(), &format!("-O{level}"))?;
            }
            _ if session.only_compiles() => {}
            _ => {
                session.launch_with(hints, multiply, [2, 2], (&a, &b, &mut c))?;
                ensure!(c.to_vec()?.iter().all(|&c| c == 128.0), "not 128 with {hints:?}");
            }
        }
    }
    Ok(())
}

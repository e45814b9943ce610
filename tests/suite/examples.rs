//! The kernels of the examples, as `benches/kernels` runs them: each at small and odd sizes on
//! every back end, and its PTX at full size through the assembler without spills. (They check their
//! own results.)

use anyhow::{Context, Result};
use cutlet::Target;

use crate::harness::{Session, Suite};
use crate::lines::without_lines;
use crate::measure::by_name;
use crate::ptxas::{self, Demand};
use crate::temp_dir::TemporaryFolder;
use crate::test_sample::one_in;
use crate::tileiras;

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    macro_rules! each {
        ($($example:ident: $(($($sizes:literal)*))+;)+) => {$(
            suite.test(concat!("example/", stringify!($example)), |session| {
                let all: &[&[&str]] = &[$(&[$($sizes),*]),+];
                all.iter().step_by(one_in(3)).try_for_each(|sizes| check(session, stringify!($example), sizes))
            });
        )+};
    }
    suite.test("example/emit", emit);
    each! {
        hello: ("--x" "3" "--y" "1");
        vadd: ("--n" "5000") ("--n" "4096" "--tile" "2048");
        saxpy: ("--n" "5000" "--alpha=-2.5");
        transpose: ("--m" "64" "--n" "128") ("--m" "101" "--n" "77") ("--m" "100" "--n" "60" "--tile" "32" "64");
        stencil: ("--m" "64" "--n" "256") ("--m" "101" "--n" "77") ("--m" "33" "--n" "60" "--tile" "8" "32");
        argmax: ("--m" "5" "--n" "1024") ("--m" "7" "--n" "1000") ("--m" "3" "--n" "1");
        welford: ("--m" "5" "--n" "1024") ("--m" "7" "--n" "1000") ("--m" "3" "--n" "1") ("--m" "5" "--n" "1000" "--pairs") ("--m" "3" "--n" "1" "--pairs");
        experts: ("--m" "13") ("--m" "32" "--tile" "16");
        vocabulary: ("--m" "2" "--n" "3000");
        embedding: ("--rows" "50" "--columns" "256" "--ids" "33") ("--rows" "7" "--columns" "100" "--ids" "5")
            ("--rows" "9" "--columns" "96" "--ids" "12" "--tile" "64");
        fft: ("--batch" "11" "--n" "64" "--rows" "4") ("--batch" "3" "--n" "128" "--inverse");
        histogram: ("--n" "20000") ("--n" "4096" "--blocks" "1") ("--n" "9999" "--tile" "512" "--blocks" "3");
        dropout: ("--n" "5000") ("--n" "4099" "--tile" "512" "--keep" "0.25" "--seed" "12345678901234" "--offset" "7000000000")
            // Emits the other kernel.
            ("--n" "3000" "--keep" "1" "--part" "backward");
        padding: ("--m" "13") ("--m" "5" "--n" "96" "--tile" "8") ("--m" "6" "--n" "80" "--padded");
        mutex: ("--blocks" "9") ("--blocks" "5" "--n" "100");
        prefix_sum: ("--n" "100000" "--tile" "1024") ("--n" "1") ("--type" "i32" "--n" "70001" "--tile" "512")
            ("--type" "i32" "--n" "24576" "--tile" "8192");
        quantized_matmul: ("--type" "u4" "--m" "70" "--n" "100" "--k" "96" "--tile" "64" "64" "32")
            ("--type" "f6e3m2" "--m" "33" "--n" "40" "--k" "70" "--tile" "32" "32" "32" "--group" "64");
        scaled_matmul: ("--m" "152" "--n" "450" "--k" "300" "--tile" "128" "192") ("--m" "150" "--n" "300" "--k" "300") ("--m" "70" "--n" "200" "--k" "128" "--tile" "64" "192");
        softmax: ("--m" "5" "--n" "1024") ("--m" "7" "--n" "1000") ("--m" "3" "--n" "1");
        layernorm: ("--m" "5" "--n" "1024") ("--m" "7" "--n" "1000");
        layernorm_backward: ("--m" "9" "--n" "512" "--blocks" "4") ("--m" "7" "--n" "500" "--blocks" "3")
            // Emits the other kernel.
            ("--m" "9" "--n" "512" "--blocks" "4" "--part" "columns")
            ("--m" "7" "--n" "500" "--blocks" "3" "--part" "columns");
        matmul: ("--m" "128" "--n" "128" "--k" "64") ("--type" "bf16" "--m" "150" "--n" "130" "--k" "70")
            ("--type" "tf32" "--m" "65" "--n" "100" "--k" "33") ("--type" "f32" "--m" "65" "--n" "100" "--k" "33")
            ("--type" "f64" "--m" "65" "--n" "100" "--k" "33")
            ("--type" "e4m3" "--columns" "--m" "150" "--n" "130" "--k" "70")
            ("--type" "e4m3" "--fast-acc" "--m" "144" "--n" "160" "--k" "96")
            ("--type" "i8" "--m" "144" "--n" "160" "--k" "96")
            ("--type" "tf32" "--persistent" "--m" "300" "--n" "256" "--k" "128" "--tile" "256" "128" "32")
            ("--type" "f16" "--persistent" "--columns" "--m" "300" "--n" "260" "--k" "70");
        attention: ("--seq" "128" "--causal") ("--seq" "200" "--dim" "128" "--type" "bf16")
            ("--seq" "330" "--heads" "1" "--dim" "256" "--type" "bf16" "--tile" "128" "80" "--causal")
            ("--seq" "150" "--heads" "4" "--kv-heads" "2" "--causal" "--tile" "64" "32")
            ("--seq" "77" "--causal" "--tile" "16" "64" "--type" "bf16") ("--seq" "1" "--tile" "32" "16")
            ("--seq" "300" "--heads" "1" "--dim" "128" "--causal" "--tile" "64" "128");
        attention_backward: ("--seq" "112" "--causal" "--type" "bf16" "--apart" "--tile" "32" "64" "--query-tile" "64" "32")
            ("--seq" "130" "--dim" "64" "--heads" "1")
            // Emits the other kernels.
            ("--seq" "77" "--dim" "64" "--apart" "--tile" "32" "64" "--late" "--part" "queries")
            ("--seq" "64" "--dim" "64" "--heads" "1" "--part" "rows")
            ("--seq" "64" "--dim" "64" "--heads" "1" "--part" "narrowed");
        attention_f8: ("--seq" "150" "--dim" "64" "--causal" "--tile" "64" "64") ("--seq" "100" "--heads" "1")
            // Emits the other kernel.
            ("--seq" "33" "--dim" "64" "--tile" "32" "32" "--part" "turned");
        batched_matmul: ("--batch" "3" "--m" "70" "--n" "50" "--k" "40")
            ("--type" "f16" "--batch" "3" "--m" "70" "--n" "50" "--k" "40")
            ("--type" "f16" "--persistent" "--batch" "3" "--m" "144" "--n" "160" "--k" "96");
    }
}

/// Every form that an example emits.
fn emit(session: Session) -> Result<()> {
    if !matches!(session, Session::Run(device) if device.backend() == cutlet::Backend::Cpu) {
        return Ok(());
    }
    let folder = TemporaryFolder::new()?;
    let path = folder.path().join("code");
    let emitted = |options: &[&str]| {
        let output = path.display().to_string();
        start("vadd", &[&["--output", &output, "--emit"], options].concat())?;
        anyhow::Ok(std::fs::read(&path)?)
    };
    let has = |options: &[&str], part: &str| {
        let text = String::from_utf8_lossy(&emitted(options)?).into_owned();
        anyhow::ensure!(text.contains(part), "{options:?} has no {part}:\n{text}");
        anyhow::Ok(())
    };
    has(&["ir"], "load_view_tko")?;
    has(&["tileir", "--target", "sm_100"], "entry @vadd(")?;
    has(&["ptx", "--target", "sm_80"], ".target sm_80")?;
    has(&["schedule"], "program all")?;
    has(&["tilebc"], "\u{7f}TileIR")?;
    // The sum of vectors is traced as it stays; of rows, equal numbers become one.
    start("softmax", &["--output", &path.display().to_string(), "--emit", "passes"])?;
    let passes = std::fs::read_to_string(&path)?;
    anyhow::ensure!(passes.contains("\n--- trace\n+++ cse\n"), "{passes}");
    for (minor, version) in ["13.1", "13.2", "13.3", "13.4", "13.5"].iter().enumerate() {
        let bytes = emitted(&["tilebc", "--target", "sm_100", "--bytecode-version", version])?;
        anyhow::ensure!(bytes[9] as usize == minor + 1, "13.{} instead of {version}", bytes[9]);
    }
    Ok(())
}

/// Runs a kernel with these options.
fn start(name: &str, options: &[&str]) -> Result<()> {
    let words: Vec<String> = options.iter().map(|text| text.to_string()).collect();
    by_name(name)?(&words).with_context(|| format!("{name} {}", options.join(" ")))
}

/// Kernels that make nothing of a second block for each tile: they have no array, or take a lock,
/// or a ticket, or add atomically. (`tests/checks.rs` has faults of those.)
const HARMLESS: [&str; 4] = ["hello", "histogram", "mutex", "prefix_sum"];

/// On the cpu back end: all checks find nothing, and that of races finds that two blocks do the
/// work of one.
fn checked(name: &str, sizes: &[&str]) -> Result<()> {
    let with = |options: &[&str]| start(name, &[&["--backend", "cpu", "--iterations", "1"], sizes, options].concat());
    with(&["--check", "all"]).context("with all checks")?;
    // Attention and the plain product of matrices in a batch ask for all axes.
    let asks_for_all = name.starts_with("attention") && name != "attention_queries"
        || name == "batched_matmul" && !sizes.contains(&"--persistent");
    if HARMLESS.contains(&name) || asks_for_all {
        return Ok(());
    }
    let said = format!("{:?}", with(&["--check", "races", "--twice"]).err());
    anyhow::ensure!(said.contains("a race: this "), "{name}: a planted race was not found: {said}");
    anyhow::ensure!(said.contains(&format!("examples/{name}.rs:")), "{name}: a race without its place: {said}");
    Ok(())
}

fn check(session: Session, name: &str, sizes: &[&str]) -> Result<()> {
    let call = |options: &[&str]| start(name, options);
    // At full size only the element type matters; the other sizes are those of small runs.
    let element = &sizes[sizes.iter().position(|&option| option == "--type").map_or(0..0, |at| at..at + 2)];
    let emitted = |form: &str, target: Target, sizes: &[&str]| {
        let folder = TemporaryFolder::new()?;
        let path = folder.path().join("code");
        let (target, output) = (target.to_string(), path.display().to_string());
        let emit = ["--emit", form, "--target", &target, "--output", &output];
        call(&[&emit, sizes].concat())?;
        anyhow::Ok(std::fs::read(&path)?)
    };
    match session {
        Session::Run(device) if device.backend() == cutlet::Backend::Cpu => checked(name, sizes),
        Session::Run(_) | Session::RunTileIr(_) => {
            let backend = match session {
                Session::Run(device) => device.backend().to_string(),
                _ => "tileir".to_string(),
            };
            call(&[&["--backend", &backend, "--iterations", "1"], sizes].concat())
        }
        // Examples launch by themselves.
        Session::InterpretTileIr(_) | Session::Interpret(_) => Ok(()),
        Session::Assemble(target, Demand::Noted) => [element, sizes].into_iter().try_for_each(|sizes| {
            let text = String::from_utf8(emitted("ptx", target, sizes)?)?;
            ptxas::assemble(&text, &target.to_string(), Demand::Noted)
        }),
        Session::Assemble(target, _) => {
            let lines = [element, &["--lines"]].concat();
            let (plain, ptx) = (emitted("ptx", target, element)?, emitted("ptx", target, &lines)?);
            let ptx = String::from_utf8(ptx)?;
            anyhow::ensure!(ptx.contains(".loc "), "no lines:\n{ptx}");
            anyhow::ensure!(without_lines(&ptx) == String::from_utf8(plain)?, "lines change the code:\n{ptx}");
            ptxas::assemble(&ptx, &target.to_string(), Demand::NoSpills)
        }
        Session::AssembleTileIr(target) => [element, sizes].into_iter().try_for_each(|sizes| {
            let bytecode = emitted("tilebc", target, sizes)?;
            tileiras::check(&bytecode, target, &|assembler| match tileiras::keeps_cubins() {
                true => emitted("cubin", target, sizes),
                false => Ok(assembler.assemble(name, &bytecode, target)?),
            })
        }),
    }
}

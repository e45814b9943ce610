//! Bytecode of the reference tools (`tests/data/golden`: files of cuTile Python and files made by
//! hand, each with its disassembly): read, verified, printed, written and read again.

#[path = "../src/util/temp_dir.rs"]
mod temp_dir;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use cutlet::backend::tileir::{Version, WriteOptions, read, write};
use cutlet::ir::{Module, PrintOptions, verify};

const WITH_PLACES: PrintOptions = PrintOptions::with_locations();

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden")
}

/// Every pair of bytecode and text, by name.
fn files() -> BTreeMap<String, (Vec<u8>, String)> {
    let mut files = BTreeMap::new();
    for file in std::fs::read_dir(folder()).expect("the golden files") {
        let path = file.expect("a folder entry").path();
        if path.extension().is_some_and(|e| e == "tilebc") {
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            let text = std::fs::read_to_string(path.with_extension("mlir")).expect("the text beside it");
            files.insert(name, (std::fs::read(&path).expect("bytecode"), text));
        }
    }
    assert_eq!(files.len(), 270, "golden files");
    files
}

/// The version that a file's name ends in.
fn version_of(name: &str) -> Version {
    name.rsplit_once('_').expect("NAME_VERSION").1.parse().expect("a version")
}

fn at_version(name: &str) -> WriteOptions {
    WriteOptions::default().version(version_of(name))
}

fn first_difference(ours: &str, theirs: &str) -> Option<String> {
    let lines = ours.lines().zip(theirs.lines()).enumerate();
    let mut differing = lines.filter(|(_, (a, b))| a != b);
    match differing.next() {
        Some((i, (a, b))) => Some(format!("line {}:\n    ours   {a}\n    theirs {b}", i + 1)),
        None if ours != theirs => {
            Some(format!("{} and {} lines, or line ends", ours.lines().count(), theirs.lines().count()))
        }
        None => None,
    }
}

/// Runs a check on every file and reports all that fail.
fn for_every_file(check: impl Fn(&str, &[u8], &str) -> Result<(), String>) {
    let mut failed = Vec::new();
    for (name, (bytes, text)) in files() {
        if let Err(problem) = check(&name, &bytes, &text) {
            failed.push(format!("{name}: {problem}"));
        }
    }
    assert!(failed.is_empty(), "{} of 270 files:\n{}", failed.len(), failed.join("\n"));
}

fn read_golden(bytes: &[u8]) -> Result<Module, String> {
    read(bytes).map_err(|e| e.to_string())
}

#[test]
fn files_print_as_the_reference_disassembler_prints_them() {
    for_every_file(|_, bytes, text| {
        let module = read_golden(bytes)?;
        if let Err(problems) = verify(&module) {
            return Err(format!("verifier: {}", problems[0]));
        }
        first_difference(&module.to_string(), text).map_or(Ok(()), Err)
    });
}

#[test]
fn texts_read_back() {
    for_every_file(|name, bytes, text| {
        let module = Module::parse(name, text).map_err(|problem| problem.to_string())?;
        if let Err(problems) = verify(&module) {
            return Err(format!("verifier: {}", problems[0]));
        }
        if let Some(difference) = first_difference(&module.to_string(), text) {
            return Err(difference);
        }
        // Also defaults that the text omits, and places.
        let written = write(&module, &at_version(name)).map_err(|e| e.to_string())?;
        if let Some(difference) = first_difference(&read_golden(&written)?.to_string(), text) {
            return Err(format!("from bytecode: {difference}"));
        }
        let placed = read_golden(bytes)?.to_text(WITH_PLACES);
        let again = Module::parse(name, &placed).map_err(|problem| problem.to_string())?;
        first_difference(&again.to_text(WITH_PLACES), &placed).map_or(Ok(()), Err)
    });
}

#[test]
fn files_survive_writing_and_reading() {
    for_every_file(|name, bytes, _| {
        let module = read_golden(bytes)?;
        let options = at_version(name);
        let written = write(&module, &options).map_err(|e| e.to_string())?;
        let again = read_golden(&written)?;
        if let Some(difference) = first_difference(&again.to_text(WITH_PLACES), &module.to_text(WITH_PLACES)) {
            return Err(difference);
        }
        // Everything that text hides is in the bytes.
        match write(&again, &options) {
            Ok(twice) if twice == written => Ok(()),
            Ok(_) => Err("other bytes the second time".into()),
            Err(error) => Err(error.to_string()),
        }
    });
}

#[test]
fn the_lowest_version_reads_back_as_the_same_module() {
    for_every_file(|name, bytes, _| {
        let module = read_golden(bytes)?;
        let written = write(&module, &WriteOptions::default()).map_err(|e| e.to_string())?;
        let minor = written[9];
        if minor > version_of(name).minor() {
            return Err(format!("13.{minor} is later than the file's own version"));
        }
        // Versions before 13.3 do not name their producer.
        let mut again = read_golden(&written)?;
        again.producer.clone_from(&module.producer);
        first_difference(&again.to_text(WITH_PLACES), &module.to_text(WITH_PLACES)).map_or(Ok(()), Err)
    });
}

/// The reference disassembler: `CUTLET_TILEIRDISASM`, or where `scripts/tools` puts it.
fn disassembler() -> Option<PathBuf> {
    let named = std::env::var_os("CUTLET_TILEIRDISASM").map(PathBuf::from);
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools/bin/tileirdisasm");
    named.or_else(|| installed.exists().then_some(installed))
}

#[test]
fn written_files_disassemble_to_the_same_text() {
    let Some(tool) = disassembler() else {
        println!("skipped: no tileirdisasm (scripts/tools installs it; CUTLET_TILEIRDISASM names one)");
        return;
    };
    let folder = temp_dir::TemporaryFolder::new().expect("a temporary folder");
    for_every_file(|name, bytes, text| {
        let module = read_golden(bytes)?;
        let written = write(&module, &at_version(name)).map_err(|e| e.to_string())?;
        let path = folder.path().join(format!("{name}.tilebc"));
        std::fs::write(&path, written).map_err(|e| e.to_string())?;
        let output = Command::new(&tool).arg(&path).output().map_err(|e| e.to_string())?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        first_difference(&String::from_utf8_lossy(&output.stdout), text).map_or(Ok(()), Err)
    });
}

#[test]
fn the_ptx_back_end_compiles_or_refuses_every_file() {
    use cutlet::backend::ptx::{self, CompileOptions};
    for_every_file(|_, bytes, _| {
        let mut module = read(bytes).map_err(|e| e.to_string())?;
        cutlet::pass::optimize(&mut module);
        for target in [cutlet::Target::SM_80, cutlet::Target::SM_90A] {
            let compile = || ptx::compile(&module, target, &CompileOptions::default());
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(compile));
            match outcome.map_err(|_| format!("a panic for {target}"))? {
                Ok(compiled) => drop(compiled),
                Err(cutlet::Error::Unsupported(problems)) if !problems.is_empty() => {}
                Err(other) => return Err(format!("{target}: {other}")),
            }
        }
        Ok(())
    });
}

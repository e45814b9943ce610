//! Damaged bytecode: an error with the offset, never a panic, a hang or a huge allocation. On
//! stable Rust, it runs a part of the work of the fuzz target (`fuzz/`).

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use cutlet::backend::tileir::{WriteOptions, read, write};
use cutlet::inspect::{SpilledLine, Spills};
use cutlet::ir::{Module, PrintOptions, verify};
use cutlet::{Error, Target};

/// Counts the memory of this program, so that an allocation by a false length of a file is found.
struct Counted;

static HELD: AtomicUsize = AtomicUsize::new(0);
static MAX_HELD: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        MAX_HELD.fetch_max(HELD.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

/// The files have a few thousand bytes. The tests of this program may run at the same time.
fn no_file_took_much() {
    let most = MAX_HELD.load(Relaxed);
    assert!(most < 64 << 20, "{} MiB at a time", most >> 20);
}

/// Executes the steps of the fuzz target on an input.
fn swallow(file: &[u8]) {
    match read(file) {
        Ok(module) => {
            if verify(&module).is_ok() {
                let written = write(&module, &WriteOptions::default()).expect("a module that verifies is written");
                let again = read(&written).expect("what was written is read");
                assert_eq!(again.entries.len(), module.entries.len());
                for options in [PrintOptions::default(), PrintOptions::with_locations()] {
                    let text = module.to_text(options);
                    let again = Module::parse("printed", &text).unwrap_or_else(|why| panic!("{why}\nin\n{text}"));
                    assert_eq!(again.to_text(options), text, "the text says something else when it is read");
                }
            } else {
                // Printing works on any module whose handles are in range.
                let _ = module.to_string();
            }
        }
        Err(Error::Bytecode { offset, .. }) => assert!(offset <= file.len(), "offset {offset} of {}", file.len()),
        Err(other) => panic!("another kind of error: {other}"),
    }
}

/// Returns a function of random numbers below its argument (xorshift64).
fn numbers(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed;
    move |n| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) as usize % n
    }
}

/// Random damage of files.
struct Damage {
    seed: u64,
    /// Number of damaged files.
    files: usize,
    /// Most changes of a file.
    changes: usize,
    /// Limit of the time, for slow machines.
    seconds: u64,
}

impl Damage {
    /// Calls `read` with damaged copies of each file: flipped bits, other bytes, removed bytes.
    fn each(&self, files: &[Vec<u8>], read: &mut dyn FnMut(&[u8])) {
        let (start, mut next) = (Instant::now(), numbers(self.seed));
        for round in 0..self.files {
            let mut file = files[round % files.len()].clone();
            for _ in 0..1 + next(self.changes) {
                let at = next(file.len());
                match next(4) {
                    0 => file[at] ^= 1 << next(8),
                    1 => file[at] = next(256) as u8,
                    2 => file[at] = 0xFF,
                    _ => drop(file.remove(at)),
                }
            }
            read(&file);
            if start.elapsed().as_secs() > self.seconds {
                println!("stopped after {round} files");
                break;
            }
        }
    }
}

fn golden(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden").join(format!("{name}.tilebc"));
    std::fs::read(path).expect("a golden file")
}

const SAMPLES: [&str; 8] = [
    "vadd_13.1",
    "synth_flow_13.2",
    "synth_debug_13.5",
    "synth_constants_13.4",
    "synth_mem_13.5",
    "matmul_f16_13.3",
    "gather_scatter_view_13.3",
    "synth_multimem_13.5",
];

#[test]
fn truncated_files_are_errors() {
    for name in SAMPLES {
        let file = golden(name);
        for length in 0..file.len() {
            assert!(read(&file[..length]).is_err(), "{name} cut to {length} bytes");
        }
    }
    no_file_took_much();
}

#[test]
fn flipped_bits_do_no_harm() {
    let files: Vec<Vec<u8>> = SAMPLES.iter().map(|name| golden(name)).collect();
    let damage = Damage { seed: 0x9E37_79B9_7F4A_7C15, files: 40_000, changes: 4, seconds: 60 };
    damage.each(&files, &mut swallow);
    no_file_took_much();
}

/// Machine code of a small kernel with spilled registers: `ptxas` 13.5 made it of PTX with 30 loads
/// in lines 11 to 13, which a loop in line 21 uses, with 24 registers (`-lineinfo -arch=sm_90a`).
fn cubin() -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/spilled.cubin")).expect("the file")
}

/// The spills of a file, which may be damaged.
fn spills(file: &[u8]) -> Option<Spills> {
    match Spills::of_cubin("spilled", file, Target::SM_90A) {
        Ok(spills) => {
            // There is no more of them than the file has instructions.
            let count: u32 = spills.lines.iter().map(|line| line.stores + line.loads).sum();
            assert!(count as usize <= file.len() / 16, "{spills}");
            Some(spills)
        }
        Err(Error::Compile { .. }) => None,
        Err(other) => panic!("another kind of error: {other}"),
    }
}

#[test]
fn damaged_machine_code_does_no_harm() {
    let whole = cubin();
    let found = spills(&whole).expect("lines");
    // The disassembler shows these accesses: 11 values before the loop, one of them an address, and
    // 10 in it.
    let counts = |line: &SpilledLine| [line.bytes, line.stores, line.loads, line.loop_stores, line.loop_loads];
    let lines: Vec<_> = found.lines.iter().map(|line| (line.place.clone(), counts(line))).collect();
    let place = |line| Some(("src/spilled.rs".to_owned(), line));
    assert_eq!(lines, [(place(13), [40, 10, 10, 10, 10]), (place(11), [48, 11, 11, 0, 10])]);
    (0..whole.len()).for_each(|length| drop(spills(&whole[..length])));
    let mut read = 0;
    let damage = Damage { seed: 0xD1B5_4A32_D192_ED03, files: 3_000, changes: 6, seconds: 15 };
    damage.each(&[whole], &mut |file| read += usize::from(spills(file).is_some()));
    assert!(read > 100, "{read} damaged files are read");
    no_file_took_much();
}

/// Names of entries, globals and hints with any bytes: a module that verifies has a text that is
/// parsed again.
#[test]
fn damaged_names_are_refused() {
    let mut next = numbers(0x2545_F491_4F6C_DD1D);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden");
    let mut paths: Vec<_> = std::fs::read_dir(folder).expect("the golden files").map(|e| e.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|suffix| suffix == "tilebc"));
    paths.sort();
    let (mut refused, mut fine) = (0, 0);
    for path in paths {
        let file = std::fs::read(&path).expect("a golden file");
        let module = read(&file).expect("bytecode");
        let hints = module.entries.iter().flat_map(|entry| &entry.hints.0);
        let words = hints.flat_map(|(target, keys)| keys.iter().map(|(key, _)| key).chain([target]));
        let names = module.entries.iter().map(|e| &e.name).chain(module.globals.iter().map(|g| &g.name)).chain(words);
        for name in names {
            for at in (0..file.len()).filter(|&at| file[at..].starts_with(name.as_bytes())) {
                for _ in 0..8 {
                    let mut file = file.clone();
                    for _ in 0..1 + next(2) {
                        file[at + next(name.len())] = [next(256) as u8, b'_', b'$', b'/', b' ', b'\n', b'.'][next(7)];
                    }
                    swallow(&file);
                    match read(&file).map(|module| verify(&module)) {
                        Ok(Ok(())) => fine += 1,
                        Ok(Err(why)) => refused += why.iter().filter(|w| w.message.contains(" names an entry")).count(),
                        Err(_) => {}
                    }
                }
            }
        }
    }
    assert!(refused > 100 && fine > 100, "{refused} refused, {fine} not");
}

/// As deep as a trace may be, and the verifier accepts: text and bytecode are read again, on the
/// small stack of a test's thread.
#[test]
fn deep_regions_are_read_again() {
    use cutlet::dtype::DType;
    use cutlet::ir::{Builder, Opcode};
    let nested = |depth: usize| {
        let mut b = Builder::new();
        b.begin_entry("deep", &[]);
        let yes = b.splat(DType::I1, 1, &[]);
        for _ in 0..depth {
            b.begin_block(&[]);
        }
        for _ in 0..depth {
            b.op(Opcode::Yield, &[&[]], vec![], vec![], &[]);
            let then = b.end_block();
            b.begin_block(&[]);
            b.op(Opcode::Yield, &[&[]], vec![], vec![], &[]);
            let otherwise = b.end_block();
            b.op(Opcode::If, &[&[yes]], vec![], vec![then, otherwise], &[]);
        }
        b.op(Opcode::Return, &[&[]], vec![], vec![], &[]);
        b.module
    };
    for depth in [64, 65, 128, 129, 200, 256] {
        let module = nested(depth);
        verify(&module).unwrap_or_else(|why| panic!("{depth}: {why:?}"));
        let text = module.to_string();
        assert_eq!(Module::parse("deep", &text).unwrap_or_else(|why| panic!("{depth}: {why}")).to_string(), text);
        let file = write(&module, &WriteOptions::default()).expect("bytecode");
        assert_eq!(read(&file).unwrap_or_else(|why| panic!("{depth}: {why}")).to_string(), text);
        // SAFETY: the kernel does nothing.
        unsafe { cutlet::load(&module, "deep", cutlet::Device::cpu()).expect("a kernel").launch(1, ()) }
            .expect("a launch");
    }
    let module = nested(257);
    let refused = verify(&module).expect_err("257 regions in one another");
    assert!(refused[0].message.contains("more than 256 regions in one another"), "{refused:?}");
    assert!(Module::parse("deep", &module.to_string()).is_err());
    assert!(read(&write(&module, &WriteOptions::default()).expect("bytecode")).is_err());
    // The verifier calls itself as well.
    assert!(verify(&nested(10_000)).is_err());
}

#[test]
fn absurd_lengths_are_refused_at_once() {
    let file = golden("synth_constants_13.4");
    // Each byte is replaced by the start of a number far beyond the file.
    for at in 12..file.len() {
        let mut longer = file.clone();
        longer.splice(at..=at, [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F]);
        swallow(&longer);
        let mut overwritten = file.clone();
        overwritten[at..].iter_mut().take(4).for_each(|byte| *byte = 0xFF);
        swallow(&overwritten);
    }
    no_file_took_much();
}

#[test]
fn wrong_versions_are_refused() {
    let mut file = golden("vadd_13.1");
    for (at, value) in [(0, 0), (8, 12), (9, 0), (9, 6), (10, 1), (11, 1)] {
        let old = std::mem::replace(&mut file[at], value);
        let error = read(&file).expect_err("another version");
        assert!(error.to_string().contains("byte"), "{error}");
        file[at] = old;
    }
}

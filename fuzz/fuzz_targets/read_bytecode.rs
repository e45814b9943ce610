//! Any bytes as Tile IR bytecode: read, verify, write, read again. `tests/corrupted_files.rs` runs
//! a bounded part of the same on stable Rust.
#![no_main]

use cutlet::backend::tileir::{WriteOptions, read, write};
use cutlet::ir::verify;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|file: &[u8]| {
    if let Ok(module) = read(file) {
        if verify(&module).is_ok() {
            let written = write(&module, &WriteOptions::default()).expect("a module that verifies is written");
            read(&written).expect("what was written is read");
        } else {
            let _ = module.to_string();
        }
    }
});

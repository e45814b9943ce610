//! Any text as Tile IR: parse, and what verifies prints a text that says the same.
#![no_main]

use cutlet::ir::{Module, verify};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(module) = Module::parse("text", text) {
        let printed = module.to_string();
        if verify(&module).is_ok() {
            let again = Module::parse("printed", &printed).expect("what was printed is read");
            assert_eq!(again.to_string(), printed);
        }
    }
});

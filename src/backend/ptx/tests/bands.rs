//! Bands of rows: which kernels have them, and what is planned then.

use super::beside::softmax_of;
use super::*;

fn options() -> CompileOptions {
    CompileOptions { num_warps: Some(12), schedule: true, ..CompileOptions::default() }
}

#[test]
fn three_groups_share_what_is_loaded_for_all_rows() {
    let compiled = compile(&softmax_of(192, DType::F16, [64, 128, 64], false), Target::SM_90A, &options()).unwrap();
    let text = &compiled.schedule;
    assert!(text.contains("agent math: warps 0..12, in 3 bands of rows"), "{text}{}", compiled.remarks);
}

#[test]
fn debug_text() {
    for file in ["/tmp/att.mlir", "/tmp/attc.mlir"] {
        let mut module = Module::parse("x", &std::fs::read_to_string(file).unwrap()).unwrap();
        crate::pass::optimize(&mut module);
        match crate::pass::bands::run(&module, 3) {
            Err(e) => eprintln!("BANDS: {e} {e:?}"),
            Ok(m) => std::fs::write(format!("{file}.b"), m.to_text(Default::default())).unwrap(),
        }
        let c = compile(&module, Target::SM_90A, &options()).unwrap();
        eprintln!("REMARKS {}", c.remarks);
        std::fs::write(format!("{file}.ptx"), c.text).unwrap();
    }
}

//! Registers and instructions of MMAs as ptxas reports them.

use super::*;

/// A kernel that stages operands in shared memory, multiplies in a loop and stores the accumulator.
fn kernel(request: &MmaRequest) -> String {
    let plan = MmaPlan::new(request).expect("a plan");
    let mut b = Builder::new(request.target, "product", 32 * request.num_warps as u32);
    b.function().min_blocks = Some(1);
    let trips = b.param_value(Ty::U32).reg();
    let out = b.param_value(Ty::U64).reg();
    let _ = b.param(Param::Scalar(Ty::U32));
    let thread = b.special(Special::TidX).reg();
    let acc = b.fresh_vec(element_class(request.acc), plan.acc.num_registers());
    acc.iter().for_each(|&reg| b.mov_to(reg, 0i64));
    let count = b.copy(0u32, RegClass::B32);
    let head = b.new_label();
    b.emit_label(head);
    b.bar_sync(0, None);
    let left = b.reg(Operand::Smem, RegClass::B32);
    let right = b.add(Ty::U32, left, plan.a.shared.bytes() as u32);
    let (left, right) = (OperandSource::Shared(left.into()), OperandSource::Shared(right));
    let part = MmaPart { plan: &plan, left, right, acc: &acc, accumulate: true, widens: false };
    MmaPlan::lower_together(&mut b, thread, None, &[part]);
    if plan.is_asynchronous() {
        MmaPlan::wait(&mut b, 0);
    }
    b.bar_sync(0, None);
    let next = b.add(Ty::U32, count, 1u32);
    b.mov_to(count, next);
    let more = b.setp(Cmp::Lt, Ty::U32, count, trips);
    b.bra_if(more, false, head, true);
    let bytes = u32::from(acc[0].class.bits() as u16) / 8;
    let offset = b.mul_wide(Ty::U32, thread, bytes);
    let base = b.add(Ty::U64, out, offset);
    for (i, &reg) in acc.iter().enumerate() {
        let ty = match reg.class {
            RegClass::B16 => Ty::B16,
            RegClass::F64 => Ty::F64,
            RegClass::F32 => Ty::F32,
            _ => Ty::B32,
        };
        let addr = b.address(base, i as i64 * i64::from(bytes) * 32 * request.num_warps as i64);
        b.st(Space::Global, ty, &addr, reg, MemMods::default());
    }
    b.ret();
    emit::module(request.target, &[], &[b.finish()])
}

fn ptxas() -> Option<std::path::PathBuf> {
    let named = std::env::var_os("CUTLET_PTXAS").map(Into::into);
    let local = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(".tools/bin/ptxas");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|folder| folder.join("ptxas"));
    named.into_iter().chain([local]).chain(on_path).find(|file: &std::path::PathBuf| file.is_file())
}

/// Returns the output of ptxas for a text.
fn assemble(ptxas: &std::path::Path, target: Target, text: &str, name: &str) -> String {
    let folder = std::env::temp_dir();
    let stem = folder.join(format!("cutlet-mma-{}-{name}", std::process::id()));
    let (source, cubin) = (stem.with_extension("ptx"), stem.with_extension("cubin"));
    std::fs::write(&source, text).expect("a temporary file");
    let output = std::process::Command::new(ptxas)
        .args(["-v", &format!("-arch={target}"), "-o"])
        .args([&cubin, &source])
        .output()
        .expect("ptxas runs");
    let _ = (std::fs::remove_file(&source), std::fs::remove_file(&cubin));
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{log}\n{text}");
    log
}

#[test]
fn ptxas_accepts_every_product() {
    let Some(ptxas) = ptxas() else {
        println!("skipped: no ptxas (set CUTLET_PTXAS)");
        return;
    };
    let mut number = 0;
    for target in [Target::SM_80, Target::SM_90A] {
        for types in TYPES {
            for (extents, warps) in [([1, 64, 64, 32], 4), ([1, 128, 128, 32], 8), ([2, 8, 4, 2], 1)] {
                for order in ORDERS {
                    let mut request = request(types, extents, warps, order);
                    request.target = target;
                    number += 1;
                    let log = assemble(&ptxas, target, &kernel(&request), &number.to_string());
                    assert!(log.contains("0 bytes spill stores"), "{request:?}: {log}");
                    assert!(!log.contains("warning"), "{request:?}: {log}");
                }
            }
        }
    }
}

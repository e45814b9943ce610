//! Sub-steps: mutations that the verifier rejects.

use super::super::*;
use crate::backend::ptx::schedule::{ConvertLayout, Schedule, Step, SubStep};
use crate::backend::ptx::smem::allocation::Buffer;
use crate::ir::MemScope;

const UNREAD: &str = "an unread place is written";

/// Returns schedules with other sub-steps, each with a description of the change.
pub fn mutants(schedule: &Schedule) -> Vec<(&'static str, Schedule)> {
    let mut mutants = Vec::new();
    for body in 0..schedule.sequences.len() {
        for at in 0..schedule.sequences[body].len() {
            let Step::Sub(within) = schedule.sequences[body][at] else { continue };
            let mut change = |what, change: &dyn Fn(&mut Vec<Step>)| {
                let mut changed = schedule.clone();
                change(&mut changed.sequences[body]);
                mutants.push((what, changed));
            };
            let [dropped, doubled] = match within {
                SubStep::Barrier { required: false } => ["a barrier is left out", "a barrier is repeated"],
                SubStep::Barrier { required: true } => ["a step without its barrier", "a step with two barriers"],
                SubStep::MmaReadWait { .. } => ["no wait for MMAs before the barrier", "two waits for MMAs"],
                SubStep::TmaStoreWait { .. } => ["TMA is not waited for", "TMA is waited for twice"],
                SubStep::ConvertLayout(_) => ["a change of layout is left out", "a layout is changed twice"],
                SubStep::SmemWrite(_) | SubStep::SmemRead(_) => ["a place is not used", "a place is used twice"],
                _ => ["a part of a step is left out", "a part of a step is there twice"],
            };
            change(dropped, &|steps| drop(steps.remove(at)));
            change(doubled, &|steps| steps.insert(at, steps[at].clone()));
            let next = &schedule.sequences[body][at + 1];
            let before = at.checked_sub(1).map(|before| &schedule.sequences[body][before]);
            // Data that TMA has written has also been read.
            let drained =
                at > 1 && schedule.sequences[body][at - 2] == Step::Sub(SubStep::TmaStoreWait { complete: true });
            let meets = |step: &Step| matches!(step, Step::Sub(SubStep::Barrier { .. }));
            // The order of an MMA wait and a TMA store wait is irrelevant.
            let is_mma_wait = matches!(within, SubStep::MmaReadWait { .. });
            let waits = is_mma_wait && matches!(next, Step::Sub(SubStep::TmaStoreWait { .. }));
            // An earlier barrier has published the data of this read.
            let steps = &schedule.sequences[body];
            let published = matches!(next, Step::Sub(SubStep::SmemRead(read)) if is_published(&steps[..at], *read));
            let moves = (is_mma_wait || matches!(within, SubStep::Barrier { .. })) && !waits && !published;
            if moves && next != &Step::Sub(within) {
                change("a barrier, or a step before it, is too late", &|steps| steps.swap(at, at + 1));
            }
            if let SubStep::Barrier { .. } = within
                && before.is_some_and(|before| !(meets(before) || before.is_wait() || drained))
            {
                change("a barrier is too early", &|steps| steps.swap(at - 1, at));
            }
            // The address of a staging buffer is free.
            let mut parts = schedule.sequences[body][at..].iter().take_while(|step| matches!(step, Step::Sub(_)));
            let is_read = parts.any(|step| matches!(step, Step::Sub(SubStep::SmemRead(_))));
            let others = instead(schedule, within).into_iter();
            for (what, other) in others.filter(|(what, _)| is_read || *what != UNREAD) {
                change(what, &|steps| steps[at] = Step::Sub(other));
            }
        }
    }
    mutants
}

/// Returns true if a barrier follows the last of these steps that writes to a buffer.
fn is_published(steps: &[Step], read: Buffer) -> bool {
    let overlaps = |write: &Buffer| write.offset < read.offset + read.bytes && read.offset < write.offset + write.bytes;
    let writes = |step: &Step| matches!(step, Step::Sub(SubStep::SmemWrite(write)) if overlaps(write));
    let last = steps.iter().rposition(writes);
    last.is_some_and(|last| steps[last..].iter().any(|step| matches!(step, Step::Sub(SubStep::Barrier { .. }))))
}

/// Returns wrong sub-steps in place of this one.
fn instead(schedule: &Schedule, within: SubStep) -> Vec<(&'static str, SubStep)> {
    let moved = |buffer: Buffer, by: u32| Buffer { offset: buffer.offset + by, ..buffer };
    match within {
        SubStep::SmemWrite(buffer) => vec![
            (UNREAD, SubStep::SmemWrite(moved(buffer, buffer.bytes))),
            ("there is no memory where a step writes", SubStep::SmemWrite(moved(buffer, schedule.smem.budget()))),
            ("a place is too small", SubStep::SmemWrite(Buffer { bytes: buffer.bytes - 128, ..buffer })),
        ],
        SubStep::SmemRead(buffer) => {
            vec![("an unwritten place is read", SubStep::SmemRead(moved(buffer, 128)))]
        }
        SubStep::StoredOperand { value, buffer } => vec![
            (
                "an operand is read where none is stored",
                SubStep::StoredOperand { value, buffer: moved(buffer, buffer.bytes) },
            ),
            ("another operand is stored there", SubStep::StoredOperand { value: crate::ir::Value(0), buffer }),
        ],
        SubStep::ConvertLayout(conversion) => vec![
            (
                "another value is brought",
                SubStep::ConvertLayout(ConvertLayout { value: crate::ir::Value(0), ..conversion }),
            ),
            ("another plan of a change", SubStep::ConvertLayout(ConvertLayout { plan: u32::MAX, ..conversion })),
        ],
        SubStep::Barrier { required: always } => {
            vec![("a barrier has another reason", SubStep::Barrier { required: !always })]
        }
        SubStep::TmaStoreWait { complete: written } => {
            vec![("TMA does another thing", SubStep::TmaStoreWait { complete: !written })]
        }
        SubStep::Split { count, in_flight } => vec![
            ("other parts", SubStep::Split { count: 2 * count, in_flight }),
            ("other parts", SubStep::Split { count, in_flight: in_flight + 1 }),
        ],
        SubStep::MmaReadWait { pending } => {
            vec![("products land one group too few", SubStep::MmaReadWait { pending: pending + 1 })]
        }
        SubStep::DoubleBuffer(slots) => vec![
            ("slots are elsewhere", SubStep::DoubleBuffer(moved(slots, slots.bytes))),
            ("slots are too small", SubStep::DoubleBuffer(Buffer { bytes: slots.bytes / 2, ..slots })),
        ],
        SubStep::GlobalAccess(_) | SubStep::SmemOverflow { .. } => Vec::new(),
    }
}

/// Returns kernels with barriers: of partial reductions in a loop; of an array that is written and
/// read in different shapes; before an ordered store; of an operand of two MMAs.
pub fn modules() -> Vec<Module> {
    vec![sums_in_a_loop(), written_and_read(), super::super::optimizations::two_values()]
}

fn sums_in_a_loop() -> Module {
    let mut k = Kernel::new("sums");
    let arrays = [(); 2].map(|()| k.array(DType::F32, 2, true));
    let [x, y] = arrays.map(|array| k.partition(&array, &[2, 1024], &[0, 1]));
    let i = k.bids()[0];
    let (zero, one, count) = (k.index(0), k.index(1), k.index(64));
    let start = k.b.splat(DType::F32, 0, &[2, 1024]);
    let (int, state) = (k.tile(DType::I32, &[]), k.tile(DType::F32, &[2, 1024]));
    let body = k.b.begin_block(&[int, state]);
    let args = k.b.module.block(body).args.clone();
    let tile = k.load(x, &[i, args[0]]);
    let sum = k.reduce(Opcode::AddF, tile, 1, 0);
    let sum = k.shaped(Opcode::Reshape, sum, &[2, 1], vec![]);
    let sum = k.shaped(Opcode::Broadcast, sum, &[2, 1024], vec![]);
    let faded = k.op(Opcode::MulF, &[args[1], sum]);
    k.b.op(Opcode::Continue, &[&[faded]], vec![], vec![], &[]);
    k.b.end_block();
    let id = k.b.op(Opcode::For, &[&[zero], &[count], &[one], &[start]], vec![], vec![body], &[state]);
    let result = k.b.module.op(id).results[0];
    k.store(result, y, &[i, zero]);
    k.finish()
}

fn written_and_read() -> Module {
    let mut k = Kernel::new("both_ways");
    let arrays = [(); 2].map(|()| k.array(DType::F32, 2, true));
    let i = k.bids()[0];
    let zero = k.index(0);
    let [rows, columns] = [[64, 32], [32, 64]].map(|tile| k.partition(&arrays[0], &tile, &[0, 1]));
    let result = k.partition(&arrays[1], &[32, 64], &[0, 1]);
    let tile = k.load(rows, &[i, zero]);
    let doubled = k.op(Opcode::AddF, &[tile, tile]);
    k.store(doubled, rows, &[i, zero]);
    let again = k.load(columns, &[i, zero]);
    let token = k.b.module.intern(Type::Token);
    let attrs = vec![Attr::MemOrder(MemOrder::Release), Attr::MemScope(MemScope::Device)];
    k.b.op(Opcode::StoreView, &[&[again], &[result], &[i, zero], &[]], attrs, vec![], &[token]);
    k.finish()
}

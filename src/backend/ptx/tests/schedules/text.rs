//! The text of a schedule shows each field of its steps.

use std::collections::HashSet;
use std::rc::Rc;

use super::{each_schedule, step_mutants};
use crate::backend::ptx::schedule::{
    Buffer, CarriedMma, ConversionKind, CpAsyncPlan, For, HoistedOperand, KernelInfo, LayoutId, OrderPoint, Schedule,
    Step, StripMine, StripRole, SubStep, TmaStore,
};
use crate::ir::{OpId, Value};

#[test]
fn schedules_have_steps_of_each_kind() {
    let (mut count, mut words) = (0, HashSet::new());
    each_schedule(|_, info, _, schedule| {
        let text = schedule.to_text(info.module);
        words.extend(text.lines().filter_map(|line| line.split_whitespace().next().map(str::to_owned)));
        words
            .extend(text.contains("registers per iteration, live-out %").then(|| "a strip with a live-out".to_owned()));
        let lines = ["tma_store_wait read", "barrier required", "order_wait mma", "order_wait exp", "mma_read_wait"];
        words.extend(
            lines
                .into_iter()
                .filter(|line| text.lines().any(|other| other.trim().starts_with(*line)))
                .map(str::to_owned),
        );
        count += 1;
    });
    assert!(count > 80, "{count} schedules");
    let steps = "defer exec local_load tma_store boxes staging privatized_atomic mma produce prefetch advance strip_mine for if \
                 cp_async carried_mma copy unroll consumer_wait mma_wait epilogue order_wait order_arrive pingpong \
                 convert_layout smem_write smem_read global_access split double_buffer tma_store_wait barrier";
    let forms = [
        "a strip with a live-out",
        "tma_store_wait read",
        "barrier required",
        "order_wait mma",
        "order_wait exp",
        "mma_read_wait",
    ];
    for word in steps.split(' ').chain(forms) {
        assert!(words.contains(word), "no schedule has a step `{word}`: {words:?}");
    }
}

#[test]
fn text_shows_every_change() {
    each_schedule(|name, info, _, schedule| {
        let text = schedule.to_text(info.module);
        // The offsets of the elements of a box follow from its other fields.
        let derived = "an element is at another offset";
        for (what, mutant) in step_mutants(info, schedule).filter(|(what, _)| *what != derived) {
            assert_ne!(mutant.to_text(info.module), text, "{name}: {what}");
        }
    });
}

#[test]
fn text_shows_every_field() {
    let mut changes = 0;
    each_schedule(|name, info, _, schedule| {
        let text = schedule.to_text(info.module);
        let mut kinds = HashSet::new();
        for (body, steps) in schedule.sequences.iter().enumerate() {
            // One step of each kind.
            let new = |(_, step): &(usize, &Step)| kinds.insert(std::mem::discriminant(*step));
            for (at, step) in steps.iter().enumerate().filter(new) {
                for other in with_other_fields(info, step).into_iter().filter(|other| other != step) {
                    let mut changed = schedule.clone();
                    changed.sequences[body][at] = other.clone();
                    assert_ne!(changed.to_text(info.module), text, "{name}: {step:?} in place of {other:?}");
                    changes += 1;
                }
            }
        }
        for (at, partition) in schedule.partitions.iter().enumerate() {
            let mut changed = Schedule { partitions: schedule.partitions.clone(), ..schedule.clone() };
            changed.partitions[at].warps.end += partition.warps.start + 1;
            assert_ne!(changed.to_text(info.module), text, "{name}: {partition:?}");
        }
    });
    assert!(changes > 1000, "{changes} changes");
}

/// This value with each of the changes.
fn each<T: Clone>(plan: &T, changes: &[&dyn Fn(&mut T)]) -> Vec<T> {
    let with = |change: &&dyn Fn(&mut T)| {
        let mut changed = plan.clone();
        change(&mut changed);
        changed
    };
    changes.iter().map(with).collect()
}

/// Steps that differ from this one in a field each.
fn with_other_fields(info: &KernelInfo<'_>, step: &Step) -> Vec<Step> {
    let mut ops = Vec::new();
    info.module.walk(info.module.entries[0].body, &mut |id| ops.push(id));
    let other = |id: OpId| ops.iter().copied().find(|&other| other != id).unwrap_or(id);
    match step.clone() {
        Step::Deferred(id) => vec![Step::Deferred(other(id)), Step::Exec(id)],
        Step::Exec(id) => vec![Step::Exec(other(id)), Step::PrivatizedAtomic(id), Step::End(id)],
        Step::PrivatizedAtomic(id) => vec![Step::PrivatizedAtomic(other(id)), Step::Deferred(id)],
        Step::End(id) => vec![Step::End(other(id)), Step::Exec(id)],
        Step::LocalLoad(id) => vec![Step::LocalLoad(other(id)), Step::Exec(id)],
        Step::Prefetch(id) => vec![Step::Prefetch(other(id)), Step::Deferred(id)],
        Step::StripMine(plan) => {
            let id = other(plan.ops[0].0);
            with_other_strip_fields(&plan, id).into_iter().map(|plan| Step::StripMine(Rc::new(plan))).collect()
        }
        Step::TmaStore(plan) => {
            let id = other(plan.op);
            with_other_store_fields(&plan, id).into_iter().map(|plan| Step::TmaStore(Box::new(plan))).collect()
        }
        Step::Mma(plan) => {
            let id = other(plan.ops[0]);
            let changed = each(
                &plan,
                &[
                    &|plan| plan.ops[0] = id,
                    &|plan| plan.issue.push(plan.issue[0]),
                    &|plan| plan.issue[0].op += 1,
                    &|plan| plan.issue[0].extends_n = !plan.issue[0].extends_n,
                    &|plan| plan.releases.push(9),
                ],
            );
            changed.into_iter().map(Step::Mma).collect()
        }
        Step::Produce(channel) => vec![Step::Produce(channel + 1), Step::Advance(channel)],
        Step::Advance(channel) => vec![Step::Advance(channel + 1), Step::ConsumerTryWait(channel)],
        Step::ConsumerTryWait(channel) => vec![Step::ConsumerTryWait(channel + 1), Step::Produce(channel)],
        Step::ConsumerRelease(channels) => {
            let next = channels.iter().map(|channel| channel + 1).collect();
            let more = channels.iter().copied().chain([9]).collect();
            vec![Step::ConsumerRelease(next), Step::ConsumerRelease(more)]
        }
        Step::ConsumerWait(wait) => {
            let changed = each(&wait, &[&|wait| wait.channel += 1, &|wait| wait.sunk = !wait.sunk]);
            changed.into_iter().map(Step::ConsumerWait).collect()
        }
        Step::MmaWait(wait) => {
            let id = other(wait.mma);
            let changed = each(
                &wait,
                &[
                    &|wait| wait.mma = id,
                    &|wait| wait.from_previous_iteration = !wait.from_previous_iteration,
                    &|wait| wait.pending += 1,
                    &|wait| wait.sunk = !wait.sunk,
                    &|wait| wait.defer_release = !wait.defer_release,
                    &|wait| wait.release_after = wait.release_after.xor(Some(Value(0))),
                ],
            );
            changed.into_iter().map(Step::MmaWait).collect()
        }
        Step::OrderWait { point, sunk } => {
            let others = other_points(point, &ops).into_iter().map(|point| Step::OrderWait { point, sunk });
            others.chain([Step::OrderWait { point, sunk: !sunk }, Step::OrderArrive(point)]).collect()
        }
        Step::OrderArrive(point) => other_points(point, &ops).into_iter().map(Step::OrderArrive).collect(),
        Step::For(plan) => {
            let id = other(plan.op);
            with_other_loop_fields(&plan, id).into_iter().map(|plan| Step::For(Box::new(plan))).collect()
        }
        Step::Loop(plan) => {
            let id = other(plan.op);
            let changed = each(
                &plan,
                &[&|plan| plan.op = id, &|plan| plan.hoisted.push((Value(0), LayoutId(0))), &|plan| {
                    plan.hoisted_operands.push(HOISTED)
                }],
            );
            changed.into_iter().map(Step::Loop).collect()
        }
        Step::If { op, arms, pure } => {
            vec![
                Step::If { op: other(op), arms: arms.clone(), pure },
                Step::If { op, arms: Vec::new(), pure },
                Step::If { op, arms, pure: !pure },
            ]
        }
        Step::Sub(part) => with_other_part_fields(part, other(OpId(u32::MAX))).into_iter().map(Step::Sub).collect(),
    }
}

fn with_other_strip_fields(plan: &StripMine, id: OpId) -> Vec<StripMine> {
    each(
        plan,
        &[
            &|plan| plan.layout.0 += 1,
            &|plan| plan.registers_per_iteration += 1,
            &|plan| plan.ops[0].0 = id,
            &|plan| {
                let role = &mut plan.ops[0].1;
                *role = if *role == StripRole::Body { StripRole::View } else { StripRole::Body };
            },
            &|plan| plan.ops[0].1 = StripRole::Preheader,
            &|plan| plan.live_out.push(Value(0)),
        ],
    )
}

fn with_other_store_fields(plan: &TmaStore, id: OpId) -> Vec<TmaStore> {
    let changed = each(
        plan,
        &[
            &|plan| plan.op = id,
            &|plan| plan.layout.0 += 1,
            &|plan| plan.tile.shared.shape[0] += 1,
            &|plan| plan.tile.shared.element_bytes += 1,
            &|plan| plan.tile.boxes[0] += 1,
            &|plan| plan.tile.split_bits += 1,
            &|plan| plan.tile.order[0] += 1,
        ],
    );
    let staging = plan.staging.iter().flat_map(|staging| {
        let changed = each(
            staging,
            &[
                &|staging| staging.buffer.offset += 1,
                &|staging| staging.buffer.bytes += 1,
                &|staging| staging.channel = Some(staging.channel.map_or(0, |channel| channel + 1)),
                &|staging| staging.split.count += 1,
                &|staging| staging.split.bytes += 1,
                &|staging| staging.split.in_flight += 1,
            ],
        );
        let staging = changed.into_iter().map(Some).chain([None]);
        staging.map(|staging| TmaStore { staging, ..plan.clone() }).collect::<Vec<_>>()
    });
    changed.into_iter().chain(staging).collect()
}

fn other_points(point: OrderPoint, ops: &[OpId]) -> Vec<OrderPoint> {
    let all = [OrderPoint::Pipeline, OrderPoint::SideEffects, OrderPoint::Exp(Value(0)), OrderPoint::Exp(Value(1))];
    all.into_iter().chain(ops.iter().take(2).map(|&id| OrderPoint::Mma(id))).filter(|other| *other != point).collect()
}

const HOISTED: HoistedOperand = HoistedOperand { value: Value(0), mma: OpId(0), is_left: false };

fn with_other_loop_fields(plan: &For, other: OpId) -> Vec<For> {
    let carried = CarriedMma { mma: other, accumulators: vec![0], releases: vec![0] };
    let mut changed = each(
        plan,
        &[
            &|plan| plan.op = other,
            &|plan| plan.hoisted.push((Value(0), LayoutId(0))),
            &|plan| plan.hoisted_operands.push(HOISTED),
            &|plan| plan.carried_mmas.push(carried.clone()),
            &|plan| plan.unroll = Some(plan.unroll.map_or(1, |unroll| unroll + 1)),
        ],
    );
    let with_hoisted = For { hoisted: vec![(Value(0), LayoutId(0))], ..plan.clone() };
    let with_operand = For { hoisted_operands: vec![HOISTED], ..plan.clone() };
    let with_carried = For { carried_mmas: vec![carried.clone()], ..plan.clone() };
    let pairs = [
        each(&with_hoisted, &[&|_| {}, &|plan| plan.hoisted[0].0 = Value(1), &|plan| plan.hoisted[0].1 = LayoutId(1)]),
        each(
            &with_operand,
            &[
                &|_| {},
                &|plan| plan.hoisted_operands[0].value = Value(1),
                &|plan| plan.hoisted_operands[0].mma = OpId(1),
                &|plan| plan.hoisted_operands[0].is_left = true,
            ],
        ),
        each(
            &with_carried,
            &[
                &|_| {},
                &|plan| plan.carried_mmas[0].mma = OpId(other.0 + 1),
                &|plan| plan.carried_mmas[0].accumulators.push(1),
                &|plan| plan.carried_mmas[0].releases.push(1),
            ],
        ),
    ];
    changed.extend(pairs.into_iter().flatten());
    if let Some(cp_async) = &plan.cp_async {
        let with = |cp_async| For { cp_async, ..plan.clone() };
        changed.push(with(None));
        changed.extend(with_other_copies(cp_async, other).into_iter().map(|plan| with(Some(Rc::new(plan)))));
    }
    if plan.epilogue.is_some() {
        changed.push(For { epilogue: None, ..plan.clone() });
    }
    if let Some(pingpong) = &plan.pingpong {
        let counts = each(
            pingpong,
            &[&|pingpong| pingpong.stages_per_iteration[0].direct += 1, &|pingpong| {
                pingpong.stages_per_iteration[0].per_trip_of.push(other)
            }],
        );
        changed.extend(counts.into_iter().map(Some).chain([None]).map(|pingpong| For { pingpong, ..plan.clone() }));
    }
    changed
}

fn with_other_copies(plan: &CpAsyncPlan, other: OpId) -> Vec<CpAsyncPlan> {
    each(
        plan,
        &[
            &|plan| plan.address_ops.push(other),
            &|plan| plan.stage_bytes += 1,
            &|plan| plan.stages += 1,
            &|plan| plan.async_mma = !plan.async_mma,
            &|plan| plan.barrier_at_head = !plan.barrier_at_head,
            &|plan| plan.copies[0].load = other,
            &|plan| plan.copies[0].thread_private = !plan.copies[0].thread_private,
            &|plan| plan.copies[0].smem_offset += 1,
            &|plan| plan.copies[0].vector += 1,
            &|plan| plan.copies[0].thread_offsets.push(1),
            &|plan| plan.copies[0].replicas += 1,
            &|plan| plan.copies[0].accesses[0].register += 1,
            &|plan| plan.copies[0].accesses[0].xor += 1,
            &|plan| plan.copies[0].accesses[0].offset += 1,
        ],
    )
}

fn with_other_part_fields(part: SubStep, other: OpId) -> Vec<SubStep> {
    let buffers = |buffer: Buffer| each(&buffer, &[&|buffer| buffer.offset += 1, &|buffer| buffer.bytes += 1]);
    match part {
        SubStep::ConvertLayout(convert) => {
            let changed = each(
                &convert,
                &[
                    &|convert| convert.value = Value(convert.value.0 + 1),
                    &|convert| convert.to.0 += 1,
                    &|convert| convert.kind = ConversionKind::Smem(7),
                    &|convert| convert.plan += 1,
                ],
            );
            changed.into_iter().map(SubStep::ConvertLayout).collect()
        }
        SubStep::SmemWrite(buffer) => buffers(buffer).into_iter().map(SubStep::SmemWrite).collect(),
        SubStep::SmemRead(buffer) => buffers(buffer).into_iter().map(SubStep::SmemRead).collect(),
        SubStep::StoredOperand { value, buffer } => {
            let moved = buffers(buffer).into_iter().map(|buffer| SubStep::StoredOperand { value, buffer });
            moved.chain([SubStep::StoredOperand { value: Value(value.0 + 1), buffer }]).collect()
        }
        SubStep::GlobalAccess(id) => vec![SubStep::GlobalAccess(OpId(id.0 + 1)), SubStep::GlobalAccess(other)],
        SubStep::Split { count, in_flight } => {
            vec![SubStep::Split { count: count + 1, in_flight }, SubStep::Split { count, in_flight: in_flight + 1 }]
        }
        SubStep::SmemOverflow { bytes, of } => {
            vec![SubStep::SmemOverflow { bytes: bytes + 1, of }, SubStep::SmemOverflow { bytes, of: of + 1 }]
        }
        SubStep::MmaReadWait { pending } => vec![SubStep::MmaReadWait { pending: pending + 1 }],
        SubStep::DoubleBuffer(buffer) => buffers(buffer).into_iter().map(SubStep::DoubleBuffer).collect(),
        SubStep::TmaStoreWait { complete } => vec![SubStep::TmaStoreWait { complete: !complete }],
        SubStep::Barrier { required } => vec![SubStep::Barrier { required: !required }],
    }
}

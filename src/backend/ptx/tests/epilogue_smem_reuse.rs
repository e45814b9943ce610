//! Epilogue shared-memory reuse: selection, schedule, and mutations that the verifier rejects.

use std::rc::Rc;

use super::mma_overlap::{schedule_of, softmax, with_steps};
use super::schedules::each_schedule_of;
use super::*;
use crate::backend::ptx::schedule::{Schedule, StagingBuffer, Step, SubStep, WarpSpecialization};

/// Returns attention whose stages fill shared memory: one of 32 KiB, two of 32 KiB, two of 64 KiB.
fn large() -> Module {
    softmax(DType::F16, [128, 128, 256], false)
}

/// Returns a kernel with a reused stage.
pub fn kernel() -> (String, Module, CompileOptions) {
    ("staged in a stage".to_owned(), large(), CompileOptions::default())
}

#[test]
fn staging_buffers_reuse_a_stage_if_pipelines_fill_shared_memory() {
    let text = schedule_of(large());
    let pipelines: Vec<&str> = text.lines().filter(|line| line.starts_with("pipeline ")).collect();
    let wanted = [(1, 32), (2, 32), (2, 64)];
    let wanted = wanted
        .iter()
        .enumerate()
        .map(|(pipeline, (stages, kib))| format!("pipeline {pipeline}: {stages} stages of {} bytes", kib << 10));
    assert_eq!(pipelines, wanted.collect::<Vec<String>>(), "{text}");
    // The pipeline of the last load before the store.
    assert!(text.contains("channel 5: pipeline 2, staging for "), "{text}");
    let (consumer, load) = text.split_once("program producer").unwrap();
    let steps = [
        "advance 5",
        "consumer_wait 5",
        "tma_store per_warp",
        "staging 0..65536 in channel 5: ",
        "tma_store_wait read",
        "consumer_release 5",
    ];
    let all = steps.iter().try_fold(consumer, |rest, step| rest.split_once(step).map(|(_, rest)| rest));
    assert!(all.is_some(), "{text}");
    assert!(load.find("produce 4").unwrap() < load.find("produce 5").unwrap(), "{text}");
}

#[test]
fn staging_buffers_that_fit_are_separate() {
    for extents in [[128, 128, 128], [64, 128, 256]] {
        let text = schedule_of(softmax(DType::F16, extents, false));
        assert!(text.contains("staging ") && !text.contains("staging for"), "{text}");
    }
}

#[test]
fn a_reused_stage_is_released_after_the_tma_store_wait() {
    let text = compile(&large(), Target::SM_90A, &CompileOptions::default()).unwrap().text;
    let last = text.rfind("cp.async.bulk.tensor.2d.global.shared::cta").expect("a store");
    let behind = &text[last..];
    let lines = ["cp.async.bulk.wait_group.read 0;", "bar.warp.sync", "mbarrier.arrive.shared::cta.b64"];
    let all = lines.iter().try_fold(behind, |rest, line| rest.split_once(line).map(|(_, rest)| rest));
    assert!(all.is_some(), "{behind}");
    // The buffer begins at the acquired stage. The pipeline begins after the other two. Each
    // partition advances it at three positions.
    assert_eq!(text.matches(&format!(", {};", 96 << 10)).count(), 6, "{text}");
}

/// Returns wrong schedules, each with a description of the change.
fn mutants(schedule: &Schedule) -> Vec<(&'static str, Schedule)> {
    let mut mutants = Vec::new();
    let warp_spec = schedule.warp_spec.as_deref().unwrap();
    let staging_channel = warp_spec.channels.len() - 1;
    let mut with_warp_spec = |what, change: &dyn Fn(&mut WarpSpecialization)| {
        let (mut changed, mut warp_spec) = (schedule.clone(), warp_spec.clone());
        change(&mut warp_spec);
        changed.warp_spec = Some(Rc::new(warp_spec));
        mutants.push((what, changed));
    };
    with_warp_spec("a stage is the buffer of another op", &|warp_spec| {
        warp_spec.channels[staging_channel].staging_for = Some(warp_spec.channels[0].last_use)
    });
    with_warp_spec("no stage is a buffer", &|warp_spec| warp_spec.channels[staging_channel].staging_for = None);
    with_warp_spec("a stage of another pipeline", &|warp_spec| warp_spec.channels[staging_channel].pipeline = 1);
    for (body, steps) in schedule.sequences.iter().enumerate() {
        for (at, step) in steps.iter().enumerate() {
            let mut with = |what, change: &dyn Fn(&mut Vec<Step>)| {
                mutants.push((what, with_steps(schedule, body, change)));
            };
            let is_staging = |channel: u32| channel as usize == staging_channel;
            match step {
                Step::Advance(channel) if is_staging(*channel) => {
                    with("boxes in no stage", &|steps| drop(steps.remove(at)))
                }
                Step::ConsumerWait(wait) if is_staging(wait.channel) => {
                    with("boxes in a stage that others may have", &|steps| drop(steps.remove(at)));
                    with("boxes before the wait", &|steps| {
                        let tma_store = steps.iter().position(|step| matches!(step, Step::TmaStore(_))).unwrap();
                        let wait = steps.remove(at);
                        steps.insert(tma_store, wait);
                    });
                }
                Step::Sub(SubStep::TmaStoreWait { complete: false })
                    if matches!(steps.get(at + 1), Some(Step::ConsumerRelease(_))) =>
                {
                    with("the stage is released unread", &|steps| drop(steps.remove(at)));
                }
                Step::ConsumerRelease(channels) if is_staging(channels[0]) => {
                    with("the stage is never released", &|steps| drop(steps.remove(at)));
                }
                Step::Produce(channel) if is_staging(*channel) => {
                    with("no stage is acquired", &|steps| drop(steps.remove(at)))
                }
                Step::TmaStore(tma_store) => {
                    let mut with_staging = |what, change: &dyn Fn(&mut StagingBuffer)| {
                        let mut tma_store = tma_store.clone();
                        change(tma_store.staging.as_mut().unwrap());
                        with(what, &|steps| steps[at] = Step::TmaStore(tma_store.clone()));
                    };
                    with_staging("the stage of another channel", &|staging| staging.channel = Some(0));
                    with_staging("boxes in no stage, but where stages are", &|staging| staging.channel = None);
                    with_staging("boxes begin elsewhere", &|staging| staging.buffer.offset = 128);
                    with_staging("boxes reach out of the stage", &|staging| staging.buffer.offset = 1024);
                    with_staging("boxes have no room", &|staging| staging.buffer.bytes /= 2);
                }
                _ => {}
            }
        }
    }
    mutants
}

#[test]
fn epilogue_smem_reuse_is_verified() {
    let mut count = 0;
    each_schedule_of(vec![kernel()], |name, info, body, schedule| {
        info.verify_schedule(body, schedule).unwrap();
        if !name.ends_with("sm_90a") {
            return;
        }
        for (what, mutant) in mutants(schedule) {
            count += 1;
            assert!(info.verify_schedule(body, &mutant).is_err(), "{what}");
        }
    });
    assert_eq!(count, 14);
}

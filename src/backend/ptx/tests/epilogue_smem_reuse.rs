//! Epilogue shared-memory reuse: selection, schedule, and mutations that the verifier rejects.

use std::rc::Rc;

use super::mma_overlap::{schedule_of, softmax, with_steps};
use super::schedules::each_schedule_of;
use super::*;
use crate::backend::ptx::schedule::{Schedule, StagingBuffer, Step, SubStep, WarpSpecialization};

/// Attention whose stages take all of shared memory: 32 KiB, and two each of 32 and of 64 KiB.
fn large() -> Module {
    softmax(DType::F16, [128, 128, 256], false)
}

/// A kernel with a stage that is lent.
pub fn kernel() -> (String, Module, CompileOptions) {
    ("lent".to_owned(), large(), CompileOptions::default())
}

#[test]
fn boxes_stand_in_a_stage_where_rings_want_all_of_shared_memory() {
    let text = schedule_of(large());
    let rings: Vec<&str> = text.lines().filter(|line| line.starts_with("ring ")).collect();
    let wanted = [(1, 32), (2, 32), (2, 64)];
    let wanted = wanted
        .iter()
        .enumerate()
        .map(|(ring, (stages, kib))| format!("ring {ring}: {stages} stages of {} bytes", kib << 10));
    assert_eq!(rings, wanted.collect::<Vec<String>>(), "{text}");
    // The ring of what is loaded last before the store.
    assert!(text.contains("channel 5: ring 2, lent to "), "{text}");
    let (math, load) = text.split_once("program load").unwrap();
    let steps = ["take 5", "await 5", "send by warps", "outbox 0..65536 of the stage of 5: ", "drain reads", "give 5"];
    let all = steps.iter().try_fold(math, |rest, step| rest.split_once(step).map(|(_, rest)| rest));
    assert!(all.is_some(), "{text}");
    assert!(load.find("fill 4").unwrap() < load.find("fill 5").unwrap(), "{text}");
}

#[test]
fn boxes_have_a_place_of_their_own_where_there_is_room() {
    for extents in [[128, 128, 128], [64, 128, 256]] {
        let text = schedule_of(softmax(DType::F16, extents, false));
        assert!(text.contains("outbox ") && !text.contains("lent"), "{text}");
    }
}

#[test]
fn a_stage_that_was_lent_comes_back_when_it_has_been_read() {
    let text = compile(&large(), Target::SM_90A, &CompileOptions::default()).unwrap().text;
    let last = text.rfind("cp.async.bulk.tensor.2d.global.shared::cta").expect("a store");
    let behind = &text[last..];
    let lines = ["cp.async.bulk.wait_group.read 0;", "bar.warp.sync", "mbarrier.arrive.shared::cta.b64"];
    let all = lines.iter().try_fold(behind, |rest, line| rest.split_once(line).map(|(_, rest)| rest));
    assert!(all.is_some(), "{behind}");
    // Where the boxes are says the stage that was taken: the ring begins behind the other two, and is gone through in three places
    // by each agent.
    assert_eq!(text.matches(&format!(", {};", 96 << 10)).count(), 6, "{text}");
}

/// Schedules that are wrong, each with what was changed.
fn mutants(schedule: &Schedule) -> Vec<(&'static str, Schedule)> {
    let mut mutants = Vec::new();
    let roles = schedule.warp_spec.as_deref().unwrap();
    let lent = roles.channels.len() - 1;
    let mut with_roles = |what, change: &dyn Fn(&mut WarpSpecialization)| {
        let (mut changed, mut roles) = (schedule.clone(), roles.clone());
        change(&mut roles);
        changed.warp_spec = Some(Rc::new(roles));
        mutants.push((what, changed));
    };
    with_roles("a stage is lent to another op", &|roles| {
        roles.channels[lent].staging_for = Some(roles.channels[0].last_use)
    });
    with_roles("no stage is lent", &|roles| roles.channels[lent].staging_for = None);
    with_roles("a stage of another ring", &|roles| roles.channels[lent].pipeline = 1);
    for (body, steps) in schedule.sequences.iter().enumerate() {
        for (at, step) in steps.iter().enumerate() {
            let mut with = |what, change: &dyn Fn(&mut Vec<Step>)| {
                mutants.push((what, with_steps(schedule, body, change)));
            };
            let is_lent = |channel: u32| channel as usize == lent;
            match step {
                Step::Advance(channel) if is_lent(*channel) => {
                    with("boxes in no stage", &|steps| drop(steps.remove(at)))
                }
                Step::ConsumerWait(wait) if is_lent(wait.channel) => {
                    with("boxes in a stage that others may have", &|steps| drop(steps.remove(at)));
                    with("boxes before the wait", &|steps| {
                        let send = steps.iter().position(|step| matches!(step, Step::TmaStore(_))).unwrap();
                        let wait = steps.remove(at);
                        steps.insert(send, wait);
                    });
                }
                Step::Sub(SubStep::TmaStoreWait { written: false })
                    if matches!(steps.get(at + 1), Some(Step::ConsumerRelease(_))) =>
                {
                    with("the stage comes back unread", &|steps| drop(steps.remove(at)));
                }
                Step::ConsumerRelease(channels) if is_lent(channels[0]) => {
                    with("the stage never comes back", &|steps| drop(steps.remove(at)));
                }
                Step::Produce(channel) if is_lent(*channel) => with("no stage comes", &|steps| drop(steps.remove(at))),
                Step::TmaStore(send) => {
                    let mut with_outbox = |what, change: &dyn Fn(&mut StagingBuffer)| {
                        let mut send = send.clone();
                        change(send.staging.as_mut().unwrap());
                        with(what, &|steps| steps[at] = Step::TmaStore(send.clone()));
                    };
                    with_outbox("the stage of another channel", &|outbox| outbox.channel = Some(0));
                    with_outbox("boxes in no stage, but where stages are", &|outbox| outbox.channel = None);
                    with_outbox("boxes begin elsewhere", &|outbox| outbox.buffer.offset = 128);
                    with_outbox("boxes reach out of the stage", &|outbox| outbox.buffer.offset = 1024);
                    with_outbox("boxes have no room", &|outbox| outbox.buffer.bytes /= 2);
                }
                _ => {}
            }
        }
    }
    mutants
}

#[test]
fn stages_that_are_lent_are_checked() {
    let mut count = 0;
    each_schedule_of(vec![kernel()], |name, context, body, schedule| {
        context.verify_schedule(body, schedule).unwrap();
        if !name.ends_with("sm_90a") {
            return;
        }
        for (what, mutant) in mutants(schedule) {
            count += 1;
            assert!(context.verify_schedule(body, &mutant).is_err(), "{what}");
        }
    });
    assert_eq!(count, 14);
}

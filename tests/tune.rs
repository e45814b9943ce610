//! Searching among configurations: which one wins, what is kept of those that fail, what is remembered.

use std::cell::RefCell;
use std::time::Duration;

use cutlet as ct;
use cutlet::prelude::*;

/// The device of the tests; a GPU, where there is one.
fn device() -> ct::Device {
    ct::Device::first().expect("a device")
}

fn bench() -> ct::Bench {
    ct::Bench::new().warm_up(1).runs(5)
}

/// The time of work is that of a pause here: on a GPU it is not measured, and every pause is as good.
fn pause(micros: u64) {
    std::thread::sleep(Duration::from_micros(micros));
}

#[test]
fn the_fastest_wins_and_failures_are_kept() {
    let tried = RefCell::new(Vec::new());
    let tuned = ct::Tuner::new()
        .bench(bench())
        .prune(|&micros: &u64| micros != 7)
        .run(ct::Device::cpu(), &mut (), [9000, 7, 500, 13, 4000], |(), &micros| {
            tried.borrow_mut().push(micros);
            pause(micros);
            match micros {
                13 => Err(ct::Device::cpu().array(&[0u8], [2]).unwrap_err()),
                _ => Ok(()),
            }
        })
        .unwrap();
    assert_eq!(*tuned.best(), 500);
    assert_eq!(tuned.successes().iter().map(|(c, _)| *c).collect::<Vec<_>>(), [500, 4000, 9000]);
    assert_eq!(tuned.failures().len(), 1);
    assert_eq!(tuned.failures()[0].0, 13);
    // One run that does not count and five that do; a failure ends them.
    assert_eq!(*tried.borrow(), [&[9000; 6][..], &[500; 6], &[13], &[4000; 6]].concat());
    let text = tuned.to_string();
    assert!(text.starts_with("500: ") && text.contains("\n13: ") && text.contains("in 5 runs"), "{text}");
}

#[test]
fn kernels_that_work_in_place_are_restored() {
    fn add(x: ArrayMut<i32, 1>, tile: usize) {
        x.store(ct::bid(0), x.load(ct::bid(0), [tile]) + 1);
    }
    let device = device();
    let mut x = device.full([1000], 5).unwrap();
    let tuned = ct::Tuner::new()
        .bench(bench().repeats(3))
        .restore(|x: &mut ct::DeviceArray<i32, 1>| {
            let changed = x.to_vec()?;
            // Eighteen times by one configuration, or not yet, or failed.
            assert!(changed.iter().all(|&n| n == changed[0]) && [5, 23].contains(&changed[0]), "{}", changed[0]);
            x.copy_from(&[5; 1000])
        })
        .run(device, &mut x, [64usize, 45, 256], |x, &tile| {
            ct::launch(add, 1000usize.div_ceil(tile), (x, ct::Constant(tile)))
        })
        .unwrap();
    assert_eq!(x.to_vec().unwrap(), [5; 1000]);
    assert_eq!(tuned.successes().len(), 2);
    let (tile, error) = &tuned.failures()[0];
    assert!(*tile == 45 && error.to_string().contains("powers of two"), "{error}");
}

#[test]
fn nothing_to_try_and_nothing_that_runs_are_errors() {
    let run = |all: &[usize]| {
        let refuse = |(): &mut (), &n: &usize| {
            ct::Device::cpu().array(&[0u8], [n]).map(drop) // `n` is not 1
        };
        ct::Tuner::new().bench(bench()).run(ct::Device::cpu(), &mut (), all.to_vec(), refuse).map(|t| *t.best())
    };
    assert!(run(&[]).unwrap_err().to_string().contains("there is no configuration to try"));
    assert!(run(&[2, 3]).unwrap_err().to_string().contains('2'));
    assert_eq!(run(&[2, 1]).unwrap(), 1);
}

/// Doubles as long as that helps.
#[test]
fn a_search_of_ones_own_sees_what_was_measured() {
    let best = 4u64;
    let tuned = ct::Tuner::new()
        .bench(bench())
        .search(
            ct::Device::cpu(),
            &mut (),
            |tried: &[(u64, ct::Times)]| match tried {
                [] => Some(1),
                [.., (_, before), (_, last)] if last.median() > before.median() => None,
                [.., (last, _)] => Some(2 * last),
            },
            |(), &n| {
                pause(3000 * n.abs_diff(best) + 500);
                Ok(())
            },
        )
        .unwrap();
    assert_eq!(*tuned.best(), best);
    let mut tried: Vec<u64> = tuned.successes().iter().map(|(c, _)| *c).collect();
    tried.sort_unstable();
    assert_eq!(tried, [1, 2, 4, 8]);
}

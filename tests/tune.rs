//! Search among configurations: the selected one, the errors of failed ones, and the record.

use std::cell::RefCell;
use std::time::Duration;

use cutlet as ct;
use cutlet::packed::Narrow;
use cutlet::prelude::*;

/// The device of the tests; a GPU, where there is one.
fn device() -> ct::Device {
    ct::Device::first().expect("a device")
}

fn bench() -> ct::Bench {
    ct::Bench::new().warm_up(1).runs(5)
}

/// The time of work is that of a pause here: on a GPU it is not measured, and every pause is as
/// good.
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
    // Each once at first, where a failure ends it.
    let tried = tried.borrow();
    assert_eq!(tried[..4], [9000, 500, 13, 4000]);
    // Then five runs in parts of one, each after a run that is not counted; the others are not
    // close enough to the best to be measured once more.
    let times = |of: u64| tried.iter().filter(|&&micros| micros == of).count();
    assert_eq!([9000, 500, 13, 4000].map(times), [11, 11, 1, 11]);
    assert_eq!(tried[4..16], [9000, 9000, 500, 500, 4000, 4000, 4000, 4000, 500, 500, 9000, 9000]);
    let text = tuned.to_string();
    assert!(text.starts_with("500: ") && text.contains("\n13: ") && text.contains("in 5 runs"), "{text}");
}

#[test]
fn in_place_kernels_are_restored() {
    fn add(x: ArrayMut<i32, 1>, tile: usize) {
        x.store(ct::bid(0), x.load(ct::bid(0), [tile]) + 1);
    }
    let device = device();
    let mut x = device.full([1000], 5).unwrap();
    let tuned = ct::Tuner::new()
        .bench(bench().repeats(3))
        .restore(|x: &mut ct::DeviceArray<i32, 1>| {
            let changed = x.to_vec()?;
            // Once at first, or not yet, or failed; three times in each run.
            let times = changed[0] - 5;
            assert!(changed.iter().all(|&n| n == changed[0]) && (times == 1 || times % 3 == 0), "{times}");
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
            |tried: &[(u64, ct::bench::Times)]| match tried {
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

fn double(x: ArrayMut<f32, 1>, tile: usize) {
    x.store(ct::bid(0), x.load(ct::bid(0), [tile]) * 2.0);
}

type Vector = ct::DeviceArray<f32, 1>;

/// A search with kernels, whose tiles of 45 are illegal and of 32 wrong.
fn doubling() -> ct::Tuner<Vector, usize> {
    let launch = |tile: usize| ct::Launch::new(1000usize.div_ceil(tile));
    ct::Tuner::new()
        .bench(ct::Bench::new().warm_up(1).runs(3))
        .name("double 1000")
        .kernels(move |x: &mut Vector, &tile: &usize, kernels| {
            kernels.add_with(&launch(tile), double, (x, ct::Constant(tile)))
        })
        .restore(|x: &mut Vector| x.copy_from(&[1.0; 1000]))
        .check(|x| Ok(x.to_vec()?.into_iter().map(f64::from).collect()), 0.0)
}

fn work(x: &mut Vector, &tile: &usize) -> ct::Result<()> {
    let blocks = if tile == 32 { 3 } else { 1000usize.div_ceil(tile) };
    ct::launch(double, blocks, (x, ct::Constant(tile)))
}

#[test]
fn records_apply_to_their_own_search_alone() {
    let folder = std::env::temp_dir().join(format!("cutlet-tune-{}", std::process::id()));
    let path = folder.join("tuning").join("double.tune");
    let tuner = doubling().record(&path);
    let device = ct::Device::cpu();
    let mut x = device.full([1000], 1.0f32).unwrap();
    let all = [64, 45, 32, 256];
    let tuned = tuner.run(device, &mut x, all, work).unwrap();
    assert!(!tuned.is_cached() && tuned.origin() == ct::tune::Origin::Measurement);
    assert_eq!(tuned.notes(), ["there is no record of `double 1000` for cpu (cpu)"]);
    let failures: Vec<String> = tuned.failures().iter().map(|(c, error)| format!("{c}: {error}")).collect();
    assert!(failures[0].starts_with("45: ") && failures[0].contains("powers of two"), "{failures:?}");
    assert!(failures[1].contains("number 96 of the result is 1, that of `64` is 2"), "{failures:?}");

    // The file has the measurements, and is the same after reading and writing.
    let text = std::fs::read_to_string(&path).unwrap();
    let records = ct::tune::Records::read(&path).unwrap();
    assert_eq!(records.to_string(), text);
    let [record] = records.all() else { panic!("{text}") };
    assert_eq!((record.key.name.as_str(), record.key.backend.as_str()), ("double 1000", "cpu"));
    assert!(record.key.kernel.len() == 32 && record.trials.len() == 4, "{text}");

    // The same search takes it; nothing runs.
    let nothing = |_: &mut Vector, _: &usize| -> ct::Result<()> { panic!("this runs") };
    let again = tuner.run(device, &mut x, all, nothing).unwrap();
    assert_eq!((again.best(), again.origin()), (tuned.best(), ct::tune::Origin::Record));
    // So does a program that has the text.
    let carried = || doubling().records(ct::tune::Records::parse("double.tune", &text).unwrap());
    assert_eq!(carried().choose(device, &mut x, all, None).unwrap().origin, ct::tune::Origin::Record);
    assert_eq!(carried().choose(device, &mut x, all, Some(45)).unwrap().configuration, 45);

    // Other configurations, another kernel, another form of arguments, another name.
    let why = |tuner: ct::Tuner<Vector, usize>, x: &mut Vector, all: &[usize]| {
        let chosen = tuner.choose(device, x, all.to_vec(), None).unwrap();
        assert_eq!((chosen.configuration, chosen.origin), (all[0], ct::tune::Origin::Default));
        chosen.notes.join("; ")
    };
    let said = why(carried(), &mut x, &[64, 256]);
    assert!(said.contains("is out of date: space was `") && !said.contains("kernel"), "{said}");
    let other = carried().kernels(|x: &mut Vector, &tile: &usize, kernels| {
        let triple = |x: ArrayMut<f32, 1>, tile: usize| x.store(ct::bid(0), x.load(ct::bid(0), [tile]) * 3.0);
        kernels.add(triple, (x, ct::Constant(tile)))
    });
    assert!(why(other, &mut x, &all).contains("is out of date: kernel was `"));
    let mut long = device.full([1024], 1.0f32).unwrap();
    assert!(why(carried(), &mut long, &all).contains("is out of date: kernel was `"));
    assert!(why(carried().name("triple"), &mut x, &all).contains("no record of `triple`"));

    // On request, it measures again, and replaces the record.
    let afresh = tuner.ignore_cache().run(device, &mut x, all, work).unwrap();
    assert!(!afresh.is_cached());
    assert_eq!(ct::tune::Records::read(&path).unwrap().all().len(), 1);
    std::fs::remove_dir_all(folder).unwrap();
}

/// Searches of several threads and processes that write one file, which is a link.
#[test]
fn records_of_searches_at_the_same_time_are_all_kept() {
    const CHILD: &str = "CUTLET_TEST_TUNE_CHILD";
    let search = |path: &std::path::Path, by: &str| {
        for i in 0..10 {
            let tuner = ct::Tuner::new().name(format!("{by} {i}")).bench(ct::Bench::new().warm_up(0).runs(1));
            tuner.record(path).run(ct::Device::cpu(), &mut (), [1usize, 2], |(), _| Ok(())).unwrap();
        }
    };
    if let Some(path) = std::env::var_os(CHILD) {
        search(path.as_ref(), &std::process::id().to_string());
        return;
    }
    let folder = std::env::temp_dir().join(format!("cutlet-tune-together-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (target, link) = (folder.join("target.tune"), folder.join("link.tune"));
    ct::tune::Records::default().write(&target).unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::{PermissionsExt, symlink};
        std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o640)).unwrap();
        symlink("target.tune", &link).unwrap();
    }
    let child = || {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["records_of_searches_at_the_same_time_are_all_kept", "--exact"]).env(CHILD, &link);
        command.stdout(std::process::Stdio::null()).spawn().unwrap()
    };
    let mut children = [child(), child(), child()];
    std::thread::scope(|scope| {
        for thread in ["a", "b", "c"] {
            let link = &link;
            scope.spawn(move || search(link, thread));
        }
    });
    assert!(children.iter_mut().all(|child| child.wait().unwrap().success()));
    assert_eq!(ct::tune::Records::read(&link).unwrap().all().len(), 60);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(ct::tune::Records::read(&target).unwrap().all().len(), 60);
        assert_eq!(std::fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2, "neither locks nor parts are left");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn late_configurations_are_failures() {
    let (limit, long) = (Duration::from_millis(150), Duration::from_millis(200));
    let runs = RefCell::new(0);
    let work = |(): &mut (), &which: &u32| {
        *runs.borrow_mut() += 1;
        // The second one is late at once, the third one only when it is measured.
        let late = which == 2 || (which == 3 && *runs.borrow() > 3);
        std::thread::sleep(if late { long } else { Duration::from_micros(500) });
        Ok(())
    };
    let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(2)).limit(limit);
    let tuned = tuner.run(ct::Device::cpu(), &mut (), [1, 2, 3], work).unwrap();
    assert_eq!((tuned.best(), tuned.successes().len()), (&1, 1));
    let failed: Vec<u32> = tuned.failures().iter().map(|(c, _)| *c).collect();
    assert_eq!(failed, [2, 3]);
    for (_, error) in tuned.failures() {
        assert!(matches!(error, ct::Error::TimedOut { limit: of, .. } if *of == limit), "{error}");
        assert_eq!(error.to_string(), "this configuration is not done after 150ms");
    }
    // If all are late, the search fails with their error; a custom search has the same limit.
    let late = |(): &mut (), _: &u32| {
        std::thread::sleep(long);
        Ok(())
    };
    let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1)).limit(limit);
    let all = tuner.run(ct::Device::cpu(), &mut (), [1], late);
    assert!(matches!(all, Err(ct::Error::TimedOut { .. })), "{all:?}");
    let mut rest = [2, 1].into_iter();
    let sometimes = |(): &mut (), &which: &u32| {
        std::thread::sleep(if which == 2 { long } else { Duration::ZERO });
        Ok(())
    };
    let searched = tuner.search(ct::Device::cpu(), &mut (), |_| rest.next(), sometimes).unwrap();
    assert_eq!((searched.best(), searched.failures()[0].0), (&1, 2));
}

/// On a thread of a rayon pool, work that waits has its thread run other tasks, which have no
/// limit.
#[test]
fn a_limit_leaves_other_tasks_of_a_pool_alone() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let mut said = None;
    let tuned = pool.install(|| {
        rayon::scope(|scope| {
            let said = &mut said;
            scope.spawn(move |_| {
                let mut y = ct::Device::cpu().zeros::<i32, 1>([1]).unwrap();
                let slow = |y: ArrayMut<i32, 1>, n: Scalar<i32>| {
                    y.store_scalar(0, ct::fold(..n, ct::scalar(0), |s, _| s + 1));
                };
                // So much work that it takes longer than the limit anywhere.
                let start = std::time::Instant::now();
                let launched = ct::launch(slow, 1, (&mut y, 2_000_000));
                *said = Some((launched.map(|()| y.to_vec().unwrap()), start.elapsed()));
            });
            let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1)).limit(Duration::from_millis(5));
            let work = |(): &mut (), &which: &u32| {
                if which == 1 {
                    rayon::yield_now();
                }
                Ok(())
            };
            tuner.run(ct::Device::cpu(), &mut (), [1, 2], work).unwrap()
        })
    });
    let (launched, time) = said.expect("the task ran");
    assert!(time > Duration::from_millis(5), "{time:?}");
    assert_eq!(launched.unwrap(), [2_000_000]);
    // The time of the task counts for the configuration that waited.
    assert_eq!((tuned.best(), tuned.failures()[0].0), (&2, 1));
}

/// Spins until the flag has a value, which is 0 for good.
fn spin(flag: ArrayMut<i32, 1>, value: i32) {
    let flag = flag.entry(0);
    ct::while_loop((), |()| flag.atomic_cas(0, 0).ne(value), |()| ());
}

/// On the cpu device the interpreter finds such a kernel out. On a GPU nothing stops it: the search
/// ends with an error, in a process of its own here, to which the GPU is lost, and the next search
/// leaves the kernel out.
#[test]
fn a_kernel_that_never_ends_does_not_hang_the_search() {
    const RECORD: &str = "RECORD_OF_THE_KERNEL_THAT_NEVER_ENDS";
    let bench = ct::Bench::new().warm_up(0).runs(1);
    let work = |flag: &mut ct::DeviceArray<i32, 1>, &value: &i32| ct::launch(spin, 1, (flag, Constant(value)));
    let tuner = || ct::Tuner::new().name("spin").bench(bench).limit(Duration::from_secs(1));
    if let Ok(record) = std::env::var(RECORD) {
        let device = ct::Device::gpu(0).unwrap();
        let mut flag = device.zeros([1]).unwrap();
        let error = tuner().record(record).run(device, &mut flag, [0, 1], work).unwrap_err();
        assert!(matches!(error, ct::Error::TimedOut { .. }) && error.to_string().contains("`1`"), "{error}");
        std::process::exit(0);
    }
    if device() == ct::Device::cpu() {
        let mut flag = device().zeros([1]).unwrap();
        let tuned = tuner().run(device(), &mut flag, [0, 1], work).unwrap();
        assert_eq!((tuned.best(), tuned.failures()[0].0), (&0, 1));
        return;
    }
    let record = std::env::temp_dir().join(format!("cutlet-spin-{}.tune", std::process::id()));
    let name = "a_kernel_that_never_ends_does_not_hang_the_search";
    let mut process = std::process::Command::new(std::env::current_exe().unwrap());
    let mut child = process.args(["--exact", name]).env(RECORD, &record).spawn().unwrap();
    let start = std::time::Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if start.elapsed() > Duration::from_secs(120) => {
                child.kill().unwrap();
                panic!("the search hangs");
            }
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    assert!(status.success(), "{status}");
    let mut flag = device().zeros([1]).unwrap();
    let tuned = tuner().record(&record).run(device(), &mut flag, [0, 1], work).unwrap();
    assert_eq!((tuned.best(), tuned.left_out()[0].0), (&0, 1));
    std::fs::remove_file(record).unwrap();
}

#[test]
fn scratch_searches_use_copies() {
    type State = (
        Vector,
        [ct::DeviceArray<i32, 2>; 2],
        Vec<ct::packed::PackedDeviceArray<ct::packed::u4, 1>>,
        ct::math::ComplexDeviceArray<f32, 1>,
        u32,
    );
    fn change(
        (x, a, b): (ArrayMut<f32, 1>, ArrayMut<i32, 2>, ArrayMut<i32, 2>),
        p: ct::packed::PackedArrayMut<ct::packed::u4, 1>,
        z: ct::math::ComplexArrayMut<f32, 1>,
        tile: usize,
    ) {
        let i = ct::bid(0);
        x.store(i, x.load(i, [tile]) + 1.0);
        let sum = a.load((i, 0), [tile, 4]) + 1;
        b.store((i, 0), b.load((i, 0), [tile, 4]) + sum);
        a.store((i, 0), sum);
        p.store(i, p.load(i, [tile]).cast::<f32>().cast_narrow::<ct::packed::u4>());
        z.store(i, z.load(i, [tile]).mul_i());
    }
    let device = device();
    let state = || -> ct::Result<State> {
        let packed = device.packed(&(0..100).map(|i| ct::packed::u4::from_code(i % 16)).collect::<Vec<_>>(), [100])?;
        let complex = device.complex(&[ct::math::c64::new(1.0, 2.0); 100], [100])?;
        Ok((device.full([100], 5.0)?, [device.full([100, 4], 1)?, device.full([100, 4], 2)?], vec![packed], complex, 7))
    };
    let mut given = state().unwrap();
    let addresses = RefCell::new(Vec::new());
    let tuned = ct::Tuner::new()
        .bench(bench())
        .scratch()
        .check(
            |(x, [_, b], ..): &State| {
                let x = x.to_vec()?.into_iter().map(f64::from);
                Ok(x.chain(b.to_vec()?.into_iter().map(f64::from)).collect())
            },
            0.0,
        )
        .run(device, &mut given, [16usize, 32, 64], |(x, [a, b], p, z, seven), &tile| {
            assert_eq!(*seven, 7);
            addresses.borrow_mut().push(x.address());
            ct::launch(change, 100usize.div_ceil(tile), ((x, a, b), &mut p[0], z, ct::Constant(tile)))
        })
        .unwrap();
    assert_eq!((tuned.successes().len(), tuned.failures().len()), (3, 0), "{tuned}");
    // The state of the caller is unchanged, and no configuration has used it.
    let wanted = state().unwrap();
    assert_eq!(given.0.to_vec().unwrap(), wanted.0.to_vec().unwrap());
    for at in 0..2 {
        assert_eq!(given.1[at].to_vec().unwrap(), wanted.1[at].to_vec().unwrap());
    }
    assert!(given.2[0].to_vec().unwrap() == wanted.2[0].to_vec().unwrap());
    assert_eq!(given.3.to_vec().unwrap(), wanted.3.to_vec().unwrap());
    let addresses: std::collections::BTreeSet<u64> = addresses.into_inner().into_iter().collect();
    assert!(!addresses.contains(&given.0.address()));
    assert_eq!(addresses.len(), ct::Bench::cold_sets(device, 100 * 4 + 2 * 1600 + 64 + 800));
}

#[test]
fn arrays_that_have_no_like_copy_are_refused() {
    let mut words = vec![1i32; 12];
    let address = words.as_mut_ptr().expose_provenance() as u64;
    let stream = ct::Device::cpu().default_stream();
    // SAFETY: the vector has these elements, is moved into the array, and is not used before.
    let mut gaps = unsafe { stream.foreign_array::<i32, 2>(address, [3, 2], [4, 1], words) }.unwrap();
    let tuner = ct::Tuner::new().bench(bench()).scratch();
    let refused = tuner.run(ct::Device::cpu(), &mut gaps, [1], |_, _| Ok(())).unwrap_err().to_string();
    assert!(refused.contains("shape [3, 2] and strides [4, 1]") && refused.contains("`Tuner::restore`"), "{refused}");
    assert!(refused.starts_with("tests/tune.rs:"), "{refused}");
}

/// A search that ended early records the cause; the next one skips it.
#[test]
fn fatal_configurations_are_left_out_of_the_next_search() {
    let folder = std::env::temp_dir().join(format!("cutlet-stuck-{}", std::process::id()));
    let path = folder.join("double.tune");
    let device = ct::Device::cpu();
    let mut x = device.full([1000], 1.0f32).unwrap();
    let tuner = || doubling().record(&path);
    tuner().run(device, &mut x, [64, 128, 256], work).unwrap();
    // As a search writes it that had to end.
    let text = std::fs::read_to_string(&path).unwrap();
    let head: String =
        text.lines().take_while(|line| !line.starts_with("winner")).map(|line| format!("{line}\n")).collect();
    let stuck = format!("{head}winner \"\"\nfailed \"128\" \"never ends\"\n");
    std::fs::write(&path, &stuck).unwrap();
    assert_eq!(ct::tune::Records::read(&path).unwrap().to_string(), stuck);

    let chosen = tuner().choose(device, &mut x, [64, 128, 256], None).unwrap();
    assert_eq!((chosen.configuration, chosen.origin), (64, ct::tune::Origin::Default));
    assert!(chosen.notes[0].contains("had to end without a winner"), "{:?}", chosen.notes);
    let tuned = tuner().run(device, &mut x, [64, 128, 256], |x, &tile| {
        assert_ne!(tile, 128);
        work(x, &tile)
    });
    let tuned = tuned.unwrap();
    assert_eq!((tuned.left_out(), tuned.successes().len()), (&[(128, "never ends".to_owned())][..], 2));
    // The new record knows it, too, and answers.
    assert_eq!(tuner().run(device, &mut x, [64, 128, 256], work).unwrap().origin(), ct::tune::Origin::Record);
    std::fs::remove_dir_all(folder).unwrap();
}

/// Records of a device that this machine does not have.
const OF_AN_H200: &str = r#"# tuning records of cutlet, format 1

[record]
name "matmul 4096"
device "NVIDIA H200"
backend "ptx"
target "sm_90a"
driver "13000"
version "0.1.0"
kernel "0123456789abcdef0123456789abcdef"
space "00112233445566778899aabbccddeeff"
winner "(128, 256, 64)"
trial "(128, 256, 64)" 214000 215500 219000
trial "(128, 128, 64)" 231000 232000
trial "(64, 64, 64)" 410000
failed "(256, 256, 64)" "an accumulator of \"f32\"\nthat fits no registers"
left-out "(64, 32, 16)" "2 of 2 matrix products are not done by tensor cores"
"#;

#[test]
fn a_search_is_replayed_without_its_device() {
    let records = ct::tune::Records::parse("matmul.tune", OF_AN_H200).unwrap();
    assert_eq!(records.to_string(), OF_AN_H200);
    let record = &records.all()[0];
    assert_eq!(records.find(&record.key), Ok(record));
    for (part, change) in [
        ("driver", (|key| key.driver = "13010".into()) as fn(&mut ct::tune::TuneKey)),
        ("version", |key| key.version = "0.2.0".into()),
        ("kernel", |key| key.kernel.clear()),
        ("target", |key| key.target = "sm_90".into()),
    ] {
        let mut key = record.key.clone();
        change(&mut key);
        let why = records.find(&key).unwrap_err();
        assert!(why.contains("for NVIDIA H200 is out of date") && why.contains(&format!("{part} was `")), "{why}");
    }
    let mut key = record.key.clone();
    key.device = "NVIDIA H100".into();
    assert!(records.find(&key).unwrap_err().contains("no record of `matmul 4096` for NVIDIA H100 (ptx)"));

    // All of the space, and a search that stops when results get worse.
    let all = ct::tune::space(([64, 128, 256], [64, 128, 256], [64]));
    let tuner = ct::Tuner::<(), (i32, i32, i32)>::new().prune(|&(m, n, _)| n >= m);
    let mut rest = all.into_iter();
    let tuned = tuner.replay(record, |_| rest.next()).unwrap();
    assert_eq!(tuned.best(), &(128, 256, 64));
    assert_eq!(tuned.successes()[0].1.median(), Duration::from_nanos(215_500));
    let failed: Vec<_> = tuned.failures().iter().map(|(c, error)| (*c, error.to_string())).collect();
    assert!(failed.iter().any(|(c, why)| *c == (256, 256, 64) && why.contains("fits no registers")), "{failed:?}");
    assert!(failed.iter().any(|(c, why)| *c == (64, 128, 64) && why.contains("the record has no")), "{failed:?}");
}

#[test]
fn records_that_are_damaged_are_errors_with_their_lines() {
    let wrong = |from: &str, to: &str| {
        assert!(OF_AN_H200.contains(from), "{from}");
        ct::tune::Records::parse("matmul.tune", &OF_AN_H200.replacen(from, to, 1)).unwrap_err().to_string()
    };
    for (from, to, place, message) in [
        ("format 1", "format 9", 1, "the first line is not"),
        ("driver \"13000\"\n", "", 3, "this record has no `driver`"),
        ("winner \"(128, 256, 64)\"\n", "", 3, "this record has no `winner`"),
        ("winner \"(128, 256", "winner \"(1, 256", 3, "the winner `(1, 256, 64)` of this record has no times"),
        ("214000", "soon", 13, "`soon` is no time in ns"),
        (" 410000", "", 15, "a trial has at least one time"),
        ("fits no registers\"", "fits no registers", 16, "a quotation mark is missing"),
        ("registers\"", "registers\" 7", 16, "`7` follows the reason"),
        ("\\n", "\\q", 16, "there is no `\\q` in a text"),
        ("target", "goal", 7, "a record has no `goal`"),
        ("[record]", "", 4, "this line belongs to no [record]"),
    ] {
        let error = wrong(from, to);
        assert!(error.starts_with(&format!("matmul.tune:{place}:1: ")) && error.contains(message), "{error}");
    }
    // Arbitrary text: an error or records, never a panic.
    for at in 0..OF_AN_H200.len() {
        let _ = ct::tune::Records::parse("matmul.tune", &OF_AN_H200[..at]);
        let mut bytes = OF_AN_H200.as_bytes().to_vec();
        bytes[at] = b'"';
        let _ = ct::tune::Records::parse("matmul.tune", std::str::from_utf8(&bytes).unwrap());
    }
}

#[test]
fn every_step_is_told() {
    let said = std::rc::Rc::new(RefCell::new(Vec::new()));
    let log = said.clone();
    let mut x = ct::Device::cpu().full([1000], 1.0f32).unwrap();
    let tuner = doubling().on_progress(move |step| log.borrow_mut().push(step.to_string()));
    tuner.run(ct::Device::cpu(), &mut x, [64, 45], work).unwrap();
    let said = said.borrow();
    assert_eq!(said[0], "1 of 2: 64: runs");
    assert!(
        said[1].starts_with("2 of 2: 45: fails: ") && said[2].contains("64: ") && said[2].contains("runs)"),
        "{said:?}"
    );
}

/// Records of an H200 for the rows of the comparison: the plain launch of each row, without hints,
/// is nearly as fast as the best result of the search. The exceptions are listed with the reason.
#[test]
fn plain_launches_are_near_the_best_that_was_recorded() {
    const BEHIND: [(&str, f64); 9] = [
        // The persistent kernel of the example, with ping-pong groups.
        ("matmul f16 8192 8192 8192", 0.94),
        ("matmul bf16 8192 8192 8192", 0.93),
        // The persistent kernel, and less precise sums.
        ("matmul e4m3 8192 8192 8192", 0.89),
        ("matmul e4m3 4096 4096 4096", 0.92),
        // The persistent kernel, too.
        ("batched_matmul f16 8 1024 2048 512", 0.87),
        ("batched_matmul tf32 8 1024 2048 512", 0.94),
        // Terms in parts, for which the example has no kernel.
        ("quantized_matmul u4 16 4096 4096", 0.27),
        // Hints: warps, stages.
        ("top_k f32 256 131072 50", 0.93),
        ("layernorm_backward f32 4096 4096", 0.95),
    ];
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/compare");
    let records = ct::tune::Records::read(folder.join("h200.tune")).expect("records");
    let rows = std::fs::read_to_string(folder.join("rows.txt")).expect("rows");
    let median = |record: &ct::tune::Record, configuration: &str| match record.trial(configuration) {
        Some(ct::tune::Trial::Times(times)) => times[times.len() / 2].as_secs_f64(),
        other => panic!("{}: {configuration}: {other:?}", record.key.name),
    };
    let mut seen = 0;
    // Rows of the tutorial's kernels have no records.
    let recorded = rows.lines().filter(|line| !line.starts_with('#') && !line.starts_with("tutorial "));
    for (name, plain) in recorded.filter_map(|line| line.split_once(": ")) {
        let record = records.all().iter().find(|record| record.key.name == name);
        let record = record.unwrap_or_else(|| panic!("{name}"));
        let plain = record.trials.iter().map(|(text, _)| text.as_str()).find(|text| *text == plain);
        let plain = plain.unwrap_or_else(|| panic!("{name} has no record of its plain launch"));
        let fraction = median(record, &record.winner) / median(record, plain);
        let least = BEHIND.iter().find(|(row, _)| *row == name).map_or(0.97, |(_, least)| *least);
        assert!(fraction >= least, "{name}: {plain} reaches {fraction:.3} of {}", record.winner);
        seen += 1;
    }
    assert_eq!(seen, records.all().len(), "a record without a row");
}

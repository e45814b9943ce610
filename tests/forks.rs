//! Children that a process forks while its other threads launch: they launch as well, or get an
//! error, and never hang.
#![cfg(unix)]

use std::sync::atomic::{AtomicBool, Ordering};

use cutlet as ct;
use cutlet::prelude::*;

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    fn _exit(code: i32) -> !;
    fn alarm(seconds: u32) -> u32;
}

/// Blocks of a launch: several, so that the interpreter uses several threads.
const BLOCKS: usize = 64;

fn add(y: ArrayMut<i32, 1>, k: Scalar<i32>) {
    y.store(ct::bid(0), y.load(ct::bid(0), [16]) + k);
}

fn fill(y: ArrayMut<i32, 1>, value: i32) {
    y.store(ct::bid(0), ct::full([16], value));
}

/// The status of a child that does this: 0 for true, 256 for false, 14 where it hangs.
fn in_child(work: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child does this work and ends, without a way back into the test.
    unsafe {
        let pid = fork();
        assert!(pid >= 0, "no more processes");
        if pid == 0 {
            alarm(20);
            let right = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or(false);
            _exit(i32::from(!right));
        }
        let mut status = -1;
        assert_eq!(waitpid(pid, &mut status, 0), pid);
        status
    }
}

/// A kernel that the parent has compiled, one that it has not, and the elements.
fn launches(y: &mut ct::DeviceArray<i32, 1>) -> ct::Result<bool> {
    ct::launch(add, BLOCKS, (&mut *y, 1))?;
    ct::launch(|y: ArrayMut<i32, 1>| y.store(ct::bid(0), y.load(ct::bid(0), [16]) * 2), BLOCKS, (&mut *y,))?;
    Ok(y.to_vec()? == [4; 16 * BLOCKS])
}

#[test]
fn children_of_launching_threads_launch() {
    let device = ct::Device::cpu();
    let mut y = device.zeros([16 * BLOCKS]).unwrap();
    ct::launch(add, BLOCKS, (&mut y, 1)).unwrap();
    assert_eq!(in_child(|| launches(&mut y).unwrap()), 0, "a child of a quiet process");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let stop = &stop;
            scope.spawn(move || {
                let mut z = device.zeros([16 * BLOCKS]).unwrap();
                // Also new kernels, whose compilation acquires the locks of the cache.
                for n in (0..500).cycle() {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    ct::launch(add, BLOCKS, (&mut z, 1)).unwrap();
                    ct::launch(fill, 1, (&mut z, Constant(n + 1000 * thread))).unwrap();
                }
            });
        }
        let statuses: Vec<i32> = (0..100).map(|_| in_child(|| launches(&mut y).unwrap())).collect();
        stop.store(true, Ordering::Relaxed);
        assert_eq!(statuses, [0; 100]);
    });
}

#[test]
fn a_gpu_of_the_parent_is_an_error_in_a_child() {
    let Ok(gpu) = ct::Device::gpu(0) else { return };
    let mut y = gpu.zeros([16 * BLOCKS]).unwrap();
    ct::launch(add, BLOCKS, (&mut y, 1)).unwrap();
    let refused = |result: ct::Result<()>| result.is_err_and(|error| error.to_string().contains("was forked"));
    let status = in_child(|| {
        refused(ct::launch(add, BLOCKS, (&mut y, 1)))
            && refused(y.to_vec().map(drop))
            && refused(gpu.zeros::<i32, 1>([3]).map(drop))
            && refused(ct::Device::gpu(0).map(drop))
            && refused(ct::Device::first().map(drop))
    });
    assert_eq!(status, 0);
    assert_eq!(y.to_vec().unwrap(), [1; 16 * BLOCKS]);
}

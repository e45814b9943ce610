//! Arrays of one GPU in kernels of another one: launches that need two GPUs, and launches that are
//! always refused.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{Device, Error, Launch};

fn add(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
    let i = ct::bid(0);
    y.store(i, y.load(i, [1024]) + x.load(i, [1024]));
}

/// Returns two GPUs that can access each other in both directions; prints a line if there are none.
fn pair() -> ct::Result<Option<[Device; 2]>> {
    if Device::num_gpus() < 2 {
        eprintln!("skipped: fewer than two GPUs");
        return Ok(None);
    }
    let pair = [Device::gpu(0)?, Device::gpu(1)?];
    if !(pair[0].can_access(pair[1])? && pair[1].can_access(pair[0])?) {
        eprintln!("skipped: the GPUs do not reach each other");
        return Ok(None);
    }
    Ok(Some(pair))
}

const N: usize = 1 << 20;

fn is_all(array: &ct::DeviceArray<i32, 1>, value: i32) -> ct::Result<bool> {
    Ok(array.to_vec()?.iter().all(|&x| x == value))
}

#[test]
fn arrays_of_another_gpu_are_read_and_written_where_they_are() -> ct::Result<()> {
    let Some([here, there]) = pair()? else { return Ok(()) };
    for [here, there] in [[here, there], [there, here]] {
        let stream = here.stream()?;
        let launch = Launch::new(N / 1024).stream(&stream).peer_access();
        let (x, mut y) = (there.full([N], 3)?, here.full([N], 4)?);
        launch.launch(add, (&x, &mut y))?;
        assert!(is_all(&y, 7)?);
        // All arrays are of the other GPU.
        let mut z = there.full([N], 10)?;
        launch.launch(add, (&x, &mut z))?;
        assert!(is_all(&z, 13)?);
        // Without a stream the first array determines the device.
        Launch::new(N / 1024).peer_access().launch(add, (&x, &mut y))?;
        assert!(is_all(&y, 10)?);
    }
    Ok(())
}

/// Every launch and copy sees the writes of the previous launch on any GPU and stream. Memory is
/// freed after all work.
#[test]
fn work_of_two_gpus_on_one_array_is_in_order() -> ct::Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    let streams = [pair[0].stream()?, pair[1].stream()?, pair[0].stream()?, pair[1].stream()?];
    for round in 0..20 {
        let (x, mut sum) = (pair[round % 2].full([N], 1)?, pair[0].zeros::<i32, 1>([N])?);
        for step in 0..40 {
            Launch::new(N / 1024).stream(&streams[step % 4]).peer_access().launch(add, (&x, &mut sum))?;
        }
        let mut copy = pair[1].zeros::<i32, 1>([N])?;
        copy.copy_from_array(&sum.view())?;
        Launch::new(N / 1024).stream(&streams[1]).peer_access().launch(add, (&x, &mut sum))?;
        drop(x);
        assert!(is_all(&copy, 40)? && is_all(&sum, 41)?, "round {round}");
        // The last write was made by the other GPU.
        let zeros = pair[0].zeros::<i32, 1>([N])?;
        Launch::new(N / 1024).stream(&streams[1]).peer_access().launch(add, (&zeros, &mut sum))?;
        sum.copy_from(&vec![5; N])?;
        assert!(is_all(&sum, 5)?);
    }
    Ok(())
}

#[test]
fn other_gpus_are_used_on_request_alone() -> ct::Result<()> {
    let Some([here, there]) = pair()? else { return Ok(()) };
    let (x, mut y) = (there.full([N], 3)?, here.full([N], 4)?);
    let Err(Error::Argument(problem)) = ct::launch(add, N / 1024, (&x, &mut y)) else { panic!("launched") };
    assert!(problem.message.contains("`Launch::peer_access`"), "{problem}");
    Ok(())
}

#[test]
fn devices_that_do_not_reach_each_other_are_refused() -> ct::Result<()> {
    let cpu = Device::cpu();
    assert!(cpu.can_access(cpu)?);
    let (x, mut y) = (cpu.full([2048], 1)?, cpu.full([2048], 2)?);
    Launch::new(2).peer_access().launch(add, (&x, &mut y))?;
    assert!(is_all(&y, 3)?);
    if Device::num_gpus() > 0 {
        let gpu = Device::gpu(0)?;
        assert!(!gpu.can_access(cpu)? && !cpu.can_access(gpu)?);
        let stream = gpu.stream()?;
        let Err(Error::Argument(problem)) = Launch::new(2).stream(&stream).peer_access().launch(add, (&x, &mut y))
        else {
            panic!("launched")
        };
        assert!(problem.message.contains("cannot use an array on"), "{problem}");
    }
    Ok(())
}

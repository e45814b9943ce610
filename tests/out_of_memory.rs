//! Memory that the host does not have: an error, not the end of the process. Each case runs in a
//! process of its own, with a limit of its address space.

#![cfg(unix)]

use std::process::Command;

use cutlet as ct;
use cutlet::prelude::*;

/// The limit of a child, in KiB.
const LIMIT_KIB: usize = 320 << 10;

/// Elements of 8 bytes of which an array fits once, and not twice.
const ONCE: usize = 24 << 20;

/// Runs a test of this file in a child whose address space is limited, and checks that it ends
/// well. Returns true there.
fn limited(test: &str) -> bool {
    const CHILD: &str = "CUTLET_TEST_ROOM_CHILD";
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -v {LIMIT_KIB} && exec \"$0\" \"$@\"")]);
    command.arg(std::env::current_exe().expect("this program")).args([test, "--exact", "--test-threads=1"]);
    // An allocator of several threads reserves address space for each.
    command.env(CHILD, "1").env("MALLOC_ARENA_MAX", "1").env("RAYON_NUM_THREADS", "2");
    let output = command.output().expect("a process");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{}\n{said}", output.status);
    false
}

/// The text of an error, whose place is in this file.
fn refused<T>(result: ct::Result<T>) -> String {
    let error = result.map(drop).expect_err("no room").to_string();
    assert!(error.contains(&format!("{}:", file!())), "{error}");
    error
}

#[test]
fn arrays_are_filled_without_a_copy() -> ct::Result<()> {
    if !limited("arrays_are_filled_without_a_copy") {
        return Ok(());
    }
    let device = ct::Device::cpu();
    let last = |x: &ct::DeviceArray<u64, 1>| x.slice(0, ONCE - 1..)?.to_vec();
    assert_eq!(last(&device.full([ONCE], u64::MAX - 7)?)?, [u64::MAX - 7]);
    assert_eq!(last(&device.from_fn([ONCE], |[i]| i as u64)?)?, [ONCE as u64 - 1]);
    let error = refused(device.full([4 * ONCE], 1u64));
    assert!(error.contains("does not fit into the free memory of the cpu device"), "{error}");
    refused(device.from_fn([4 * ONCE], |_| 1u64));
    Ok(())
}

#[test]
fn copies_to_the_host_are_errors() -> ct::Result<()> {
    if !limited("copies_to_the_host_are_errors") {
        return Ok(());
    }
    let device = ct::Device::cpu();
    let mut x = device.zeros::<u64, 2>([ONCE / 5, 5])?;
    let error = refused(x.to_vec());
    assert!(error.contains("bytes do not fit into the free memory of the host: copy the array in parts"), "{error}");
    // With gaps, in both directions; parts that fit are copied.
    refused(x.slice(1, ..4)?.to_vec());
    refused(x.view_mut().slice(1, 1..2)?.copy_from(&vec![7; ONCE / 5]));
    x.view_mut().slice(0, ..2)?.slice(1, 1..2)?.copy_from(&[8, 9])?;
    assert_eq!(x.slice(0, ..2)?.to_vec()?, [0, 8, 0, 0, 0, 0, 9, 0, 0, 0]);
    drop(x);
    // From array to array of one device, in parts.
    let (x, mut y) = (device.full([ONCE / 2 + 3], 5u64)?, device.zeros([ONCE / 2 + 3])?);
    y.copy_from_array(&x.view())?;
    assert_eq!(y.slice(0, ONCE / 2 + 2..)?.to_vec()?, [5]);
    Ok(())
}

#[test]
fn packed_and_complex_arrays_are_errors() -> ct::Result<()> {
    use ct::packed::Narrow;
    if !limited("packed_and_complex_arrays_are_errors") {
        return Ok(());
    }
    let device = ct::Device::cpu();
    // Codes of a byte each, packed into as many bytes: once on the host, and once more with gaps
    // between the rows.
    let codes = vec![ct::packed::u7::from_code(1); 8 * ONCE / 2];
    refused(device.packed(&codes, [codes.len() / 4, 4]));
    drop(codes);
    let x = device.packed_zeros::<ct::packed::u1, 1>([32 * ONCE])?;
    refused(x.to_vec());
    drop(x);
    let numbers = vec![ct::math::c128::new(1.0, 2.0); ONCE / 4];
    let x = device.complex(&numbers, [numbers.len()])?;
    assert_eq!(x.reals().slice(0, 2..4)?.to_vec()?, [1.0, 2.0]);
    refused(x.to_vec());
    refused(device.complex(&vec![ct::math::c128::new(1.0, 2.0); ONCE / 4], [ONCE / 4]));
    Ok(())
}

#[test]
fn scratch_memory_and_tiles_are_errors() -> ct::Result<()> {
    if !limited("scratch_memory_and_tiles_are_errors") {
        return Ok(());
    }
    let mut y = ct::Device::cpu().zeros::<i64, 1>([16])?;
    let scratch = |y: ArrayMut<i64, 1>| {
        let own: Vec<_> = (0..40).map(|_| ct::scratch::<i64, 1>([1 << 22])).collect();
        own.iter().for_each(|own| own.store(0, ct::zeros([16])));
        y.store(0, ct::zeros([16]));
    };
    let error = refused(ct::launch(scratch, 1, (&mut y,)));
    assert!(error.contains("scratch memory of 33554448 bytes does not fit"), "{error}");
    let tiles = |y: ArrayMut<i64, 1>| {
        let all: Vec<_> = (0..40i64).map(|k| ct::arange_from::<i64>(1 << 22, k, 1)).collect();
        let sum = all.iter().fold(ct::scalar(0i64), |sum, tile| sum + tile.sum(0).item());
        y.entry(0).store(sum);
    };
    let error = refused(ct::launch(tiles, 1, (&mut y,)));
    assert!(error.contains("a tile of 4194304 elements does not fit"), "{error}");
    // The memory of both is free again.
    ct::launch(|y: ArrayMut<i64, 1>| y.store(0, ct::ones([16])), 1, (&mut y,))?;
    assert_eq!(y.to_vec()?, [1; 16]);
    Ok(())
}

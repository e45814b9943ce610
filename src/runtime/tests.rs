//! Tests of the runtime with a driver. Without a GPU, each test is skipped with a message.

use std::ffi::c_void;

use super::*;
use crate::backend::Assembly;
use crate::error::{Error, Result};

/// Spins for `cycles` of the clock, then adds 1 to each of `n` words, with one thread per element.
const SPIN_THEN_ADD: &str = r"
.version 8.0
.target sm_80
.address_size 64
.visible .entry spin_then_add(.param .u64 data, .param .u32 n, .param .u64 cycles)
{
    .reg .pred p, q;
    .reg .b32 i, block, size, count, value;
    .reg .b64 address, offset, start, now, wanted;
    ld.param.u64 wanted, [cycles];
    mov.u64 start, %clock64;
again:
    mov.u64 now, %clock64;
    sub.u64 now, now, start;
    setp.lt.u64 p, now, wanted;
    @p bra again;
    ld.param.u32 count, [n];
    mov.u32 i, %tid.x;
    mov.u32 block, %ctaid.x;
    mov.u32 size, %ntid.x;
    mad.lo.u32 i, block, size, i;
    setp.ge.u32 q, i, count;
    @q bra done;
    ld.param.u64 address, [data];
    cvta.to.global.u64 address, address;
    mul.wide.u32 offset, i, 4;
    add.u64 address, address, offset;
    ld.global.u32 value, [address];
    add.u32 value, value, 1;
    st.global.u32 [address], value;
done:
    ret;
}
";

pub(super) const N: usize = 1000;
/// A number of cycles: about 20 ms at the clock of an H200.
pub(super) const LONG: u64 = 40_000_000;

pub(super) fn gpu() -> Option<Device> {
    match Device::gpu(0) {
        Ok(device) => Some(device),
        Err(error) => {
            println!("skipped: {error}");
            None
        }
    }
}

pub(super) fn load(device: Device) -> Result<GpuKernel> {
    let gpu = device.as_gpu().expect("a GPU");
    let cubin = assemble(gpu, "spin_then_add", SPIN_THEN_ADD, Assembly::default())?;
    GpuKernel::load(gpu, &cubin.bytes, "spin_then_add", LaunchConfig { threads: 128, shared_bytes: 0, cluster: 1 })
}

pub(super) fn add(kernel: &GpuKernel, data: &mut DeviceArray<u32, 1>, stream: &Stream, cycles: u64) -> Result<()> {
    add_to(kernel, &mut data.view_mut(), stream, cycles)
}

pub(super) fn add_to(
    kernel: &GpuKernel,
    data: &mut DeviceViewMut<'_, u32, 1>,
    stream: &Stream,
    cycles: u64,
) -> Result<()> {
    let queue = stream.as_gpu().expect("a stream of a GPU");
    data.memory.before_use(queue, Access::of(true, data.is_part()))?;
    let (mut address, mut n, mut cycles) = (data.address(), data.len() as u32, cycles);
    let mut params: [*mut c_void; 3] = [(&raw mut address).cast(), (&raw mut n).cast(), (&raw mut cycles).cast()];
    // SAFETY: the parameters are those of the kernel; the array is freed in the order of its
    // streams.
    unsafe { kernel.launch(queue, [N.div_ceil(128) as u32, 1, 1], false, &mut params) }
}

#[test]
fn work_on_parts_of_several_threads_is_ordered() -> Result<()> {
    let Some(gpu) = gpu() else { return Ok(()) };
    let kernel = load(gpu)?;
    for _ in 0..4 {
        let mut data = gpu.zeros([N])?;
        let (mut low, mut high) = data.split_at_mut(0, N / 2)?;
        let streams = [gpu.stream()?, gpu.stream()?];
        std::thread::scope(|scope| {
            let [first, second] = &streams;
            let other = scope.spawn(|| add_to(&kernel, &mut high, second, LONG));
            add_to(&kernel, &mut low, first, LONG)?;
            other.join().expect("no panic")
        })?;
        assert_eq!(data.to_vec()?, vec![1; N]);
    }
    Ok(())
}

#[test]
fn views_move_as_on_the_cpu() -> Result<()> {
    let Some(gpu) = gpu() else { return Ok(()) };
    let host: Vec<i16> = (0..2 * 3 * 5 * 7).collect();
    let (a, b) = (gpu.array(&host, [6, 5, 7])?, Device::cpu().array(&host, [6, 5, 7])?);
    assert_eq!(a.to_vec()?, host);
    let view =
        |v: DeviceView<'_, i16, 3>| v.permute([2, 0, 1])?.slice(0, 1..6)?.step(1, 2)?.reshape([5, 15]).map(|_| ());
    assert!(view(a.view()).is_err() && view(b.view()).is_err());
    let strided = a.permute([2, 0, 1])?.slice(0, 1..6)?.step(1, 2)?;
    assert_eq!(strided.to_vec()?, b.permute([2, 0, 1])?.slice(0, 1..6)?.step(1, 2)?.to_vec()?);

    let (mut c, mut d) = (gpu.zeros([6, 10])?, Device::cpu().zeros([6, 10])?);
    for target in [&mut c, &mut d] {
        let mut part = target.view_mut().slice(1, 3..8)?;
        part.copy_from_array(&a.slice(2, 4..5)?.reshape([6, 5])?)?;
    }
    assert_eq!(c.to_vec()?, d.to_vec()?);
    let mut e = gpu.full([6, 10], -1i16)?;
    e.copy_from_array(&c.view())?;
    assert_eq!(e.to_vec()?, d.to_vec()?);
    assert!(gpu.zeros::<f64, 2>([0, 9])?.to_vec()?.is_empty());
    Ok(())
}

#[test]
fn work_of_several_streams_is_ordered_by_the_arrays() -> Result<()> {
    let Some(gpu) = gpu() else { return Ok(()) };
    let kernel = load(gpu)?;
    let streams = [gpu.default_stream(), gpu.stream()?, gpu.stream()?];
    let mut data = gpu.zeros([N])?;
    let mut want = 0;
    for round in 0..9 {
        // The long launch first: without an order, the next one would read old values.
        add(&kernel, &mut data, &streams[round % 3], if round % 2 == 0 { LONG } else { 0 })?;
        want += 1;
    }
    assert_eq!(data.to_vec()?, vec![want; N]);

    let copies = streams.iter().map(|stream| {
        add(&kernel, &mut data, stream, LONG)?;
        let mut copy = gpu.zeros([N])?;
        copy.copy_from_array(&data.view())?;
        Ok(copy)
    });
    for copy in copies.collect::<Result<Vec<_>>>()? {
        want += 1;
        assert_eq!(copy.to_vec()?, vec![want; N]);
    }
    Ok(())
}

#[test]
fn arrays_may_be_dropped_while_work_is_in_flight() -> Result<()> {
    let Some(gpu) = gpu() else { return Ok(()) };
    let kernel = load(gpu)?;
    for round in 0..4 {
        let stream = gpu.stream()?;
        let mut data = gpu.zeros([N])?;
        add(&kernel, &mut data, &stream, LONG)?;
        drop(data);
        drop(stream);
        // Allocates the same memory, if the pool may reuse it.
        assert_eq!(gpu.full([N], round)?.to_vec()?, vec![round; N]);
    }
    gpu.synchronize()
}

#[test]
fn events_measure_work() -> Result<()> {
    let Some(gpu) = gpu() else { return Ok(()) };
    let (kernel, stream) = (load(gpu)?, gpu.stream()?);
    let mut data = gpu.zeros([N])?;
    let start = stream.record()?;
    add(&kernel, &mut data, &stream, LONG)?;
    let end = stream.record()?;
    let millis = end.since(&start)?.as_secs_f64() * 1e3;
    assert!((1.0..2000.0).contains(&millis), "{millis} ms");
    Ok(())
}

#[test]
fn messages_of_the_assembler_are_reported() -> Result<()> {
    let Some(device) = gpu() else { return Ok(()) };
    let gpu = device.as_gpu().expect("a GPU");
    match assemble(gpu, "broken", &SPIN_THEN_ADD.replace("add.u64", "add.u65"), Assembly::default()) {
        Err(Error::Compile { log, kernel, .. }) => {
            println!("{log}");
            assert!(kernel == "broken" && log.contains("line"), "{log}");
        }
        other => panic!("expected a refusal, got {:?}", other.map(|cubin| cubin.log)),
    }
    println!("log of a good kernel: {}", assemble(gpu, "good", SPIN_THEN_ADD, Assembly::default())?.log);
    let config = LaunchConfig { threads: 128, shared_bytes: 0, cluster: 1 };
    let broken = SPIN_THEN_ADD.replace("add.u64", "add.u65");
    match GpuKernel::load_ptx(gpu, "broken", (&broken, Assembly::default()), "spin_then_add", config) {
        Err(Error::Compile { log, .. }) => assert!(log.contains("line"), "{log}"),
        other => panic!("expected a refusal, got {:?}", other.map(|(_, log)| log)),
    }
    let (kernel, log) =
        GpuKernel::load_ptx(gpu, "good", (SPIN_THEN_ADD, Assembly::default()), "spin_then_add", config)?;
    println!("log of the whole program: {log}");
    assert!(kernel.resources()?.0 > 0);
    assert!(load(device)?.resources()?.0 > 0);
    Ok(())
}

/// Executed in a separate process, because the context is lost; see the next test.
#[test]
#[ignore = "loses the context of the GPU"]
fn fault_alone() -> Result<()> {
    let Some(gpu) = gpu() else { return Ok(()) };
    let (kernel, stream) = (load(gpu)?, gpu.stream()?);
    let mut data = gpu.zeros([N])?;
    let (mut address, mut n, mut cycles) = (64u64, 1u32, 0u64);
    let mut params: [*mut c_void; 3] = [(&raw mut address).cast(), (&raw mut n).cast(), (&raw mut cycles).cast()];
    // SAFETY: unsound on purpose: the address is invalid, and the fault is the subject of this
    // test.
    unsafe { kernel.launch(stream.as_gpu().expect("a stream of a GPU"), [1, 1, 1], false, &mut params) }?;
    let error = stream.synchronize().expect_err("the kernel faults");
    assert!(error.to_string().contains("launched earlier"), "{error}");
    assert!(data.to_vec().is_err() && add(&kernel, &mut data, &stream, 0).is_err());
    assert!(gpu.zeros::<u32, 1>([N]).is_err());
    drop((data, stream));
    Ok(())
}

#[test]
fn a_fault_is_an_error_of_later_work() {
    let Some(_) = gpu() else { return };
    let program = std::env::current_exe().expect("this program");
    let output = std::process::Command::new(program)
        .args(["--exact", "runtime::tests::fault_alone", "--ignored", "--nocapture"])
        .output()
        .expect("this program runs again");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

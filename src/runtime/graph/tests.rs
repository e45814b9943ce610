//! Tests of graphs on the cpu device, and on a GPU if there is one.

use super::*;
use crate as ct;
use crate::runtime::tests::gpu;
use crate::runtime::{DeviceArray, DeviceView};
use crate::tile::{Array, ArrayMut, Scalar};

const TILE: usize = 64;

/// Computes `y = a x + y` for the elements of one block.
fn axpy(x: Array<f32, 1>, y: ArrayMut<f32, 1>, a: Scalar<f32>) {
    let i = ct::bid(0);
    y.store(i, x.load(i, [TILE]) * a + y.load(i, [TILE]));
}

fn increment(x: ArrayMut<i32, 1>) {
    x.store(ct::bid(0), x.load(ct::bid(0), [TILE]) + 1);
}

fn copy(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
    y.store(0, x.load(0, [TILE]));
}

fn devices() -> Vec<Device> {
    std::iter::once(Device::cpu()).chain(gpu()).collect()
}

fn ramp(device: Device, n: usize) -> Result<DeviceArray<f32, 1>> {
    device.from_fn([n], |[i]| i as f32)
}

#[test]
fn replays_are_launches_in_their_order() -> Result<()> {
    for device in devices() {
        for n in [1, 64, 1000] {
            let state = (ramp(device, n)?, device.full([n], 1.0f32)?, device.zeros([n])?);
            let blocks = n.div_ceil(TILE);
            let mut graph = Graph::capture(state, move |(x, y, z)| {
                ct::launch(axpy, blocks, (&*x, &mut *y, 2.0))?;
                z.copy_from_array(&y.view())?;
                ct::launch(axpy, blocks, (&*y, &mut *z, 0.5))
            })?;
            assert_eq!((graph.len(), graph.device()), (3, device));
            assert_eq!(graph.state().1.to_vec()?, vec![1.0; n], "not run yet");
            for round in 1..=3 {
                graph.replay()?;
                let y: Vec<f32> = (0..n).map(|i| 1.0 + 2.0 * round as f32 * i as f32).collect();
                let z: Vec<f32> = y.iter().map(|y| 1.5 * y).collect();
                let (_, its_y, its_z) = graph.state();
                assert_eq!((its_y.to_vec()?, its_z.to_vec()?), (y, z), "{device}, {n} elements, round {round}");
            }
        }
    }
    Ok(())
}

#[test]
fn arrays_are_split_in_the_closure_and_not_outside() -> Result<()> {
    for device in devices() {
        let mut graph = Graph::capture(device.zeros([200])?, |x| {
            let (mut low, mut high) = x.split_at_mut(0, 72)?;
            ct::launch(increment, 2, (&mut low,))?;
            ct::launch(copy, 1, (low.as_view(), &mut high))
        })?;
        graph.replay()?;
        graph.replay()?;
        let values = graph.state().to_vec()?;
        assert_eq!(values, [[2; 136].as_slice(), &[0; 64]].concat(), "{device}");
        // A graph that holds a part must not use the other one when its borrow has ended.
        let mut array = device.zeros([200])?;
        let (low, mut high) = array.split_at_mut(0, 72)?;
        let error = Graph::capture(low, |_| ct::launch(increment, 2, (&mut high,))).expect_err("a part");
        assert!(error.to_string().contains("that the graph does not hold"), "{error}");
    }
    Ok(())
}

#[test]
fn parameters_stay_as_they_were_until_the_state_changes() -> Result<()> {
    for device in devices() {
        let mut graph = Graph::capture((ramp(device, 100)?, device.zeros([100])?, 1.0f32), |(x, y, a)| {
            ct::launch(axpy, 2, (&*x, &mut *y, *a))
        })?;
        graph.replay()?;
        graph.state_mut().2 = 10.0;
        graph.replay()?;
        assert_eq!(graph.state().1.to_vec()?[3], 33.0);
        // Another array with another address: the old one may be dropped while its work is in
        // progress.
        graph.state_mut().1 = device.full([100], 5.0)?;
        graph.update()?;
        graph.replay()?;
        assert_eq!(graph.state().1.to_vec()?[3], 35.0);
        // Another extent needs other code, as it is no multiple of 16.
        *graph.state_mut() = (ramp(device, 128)?, device.zeros([128])?, 2.0);
        graph.replay()?;
        assert_eq!(graph.state().1.to_vec()?[127], 254.0);
    }
    Ok(())
}

#[test]
fn more_work_than_before_makes_another_graph() -> Result<()> {
    for device in devices() {
        let mut graph = Graph::capture((device.zeros([10])?, 1usize), |(x, count)| {
            (0..*count).try_for_each(|_| ct::launch(increment, 1, (&mut *x,)))
        })?;
        let mut want = 0;
        for count in [1, 7, 2, 100] {
            graph.state_mut().1 = count;
            graph.replay()?;
            want += count as i32;
            assert_eq!((graph.len(), graph.state().0.to_vec()?), (count, vec![want; 10]));
        }
    }
    Ok(())
}

#[test]
fn a_graph_borrows() -> Result<()> {
    for device in devices() {
        let (x, mut y, mut rest) = (ramp(device, 64)?, device.zeros([64])?, device.zeros([64])?);
        let mut graph = Graph::capture((&x, &mut y, rest.view_mut().slice(0, 8..)?), |(x, y, rest)| {
            ct::launch(axpy, 1, (&**x, &mut **y, 3.0))?;
            ct::launch(axpy, 1, (x.slice(0, 8..)?, rest, 1.0))
        })?;
        graph.replay()?;
        assert_eq!(x.to_vec()?[5], 5.0);
        drop(graph);
        assert_eq!((y.to_vec()?[63], rest.to_vec()?[7], rest.to_vec()?[8]), (189.0, 0.0, 8.0));
    }
    Ok(())
}

#[test]
fn replays_are_ordered_with_other_streams() -> Result<()> {
    for device in devices() {
        let streams = [device.default_stream(), device.stream()?, device.stream()?];
        let mut graph =
            Graph::capture(device.zeros([1000])?, |x| (0..20).try_for_each(|_| ct::launch(increment, 16, (&mut *x,))))?;
        for round in 0..30 {
            graph.replay_on(&streams[round % 3])?;
        }
        let mut x = graph.into_state();
        ct::Launch::new(16).stream(&streams[1]).launch(increment, (&mut x,))?;
        assert_eq!(x.to_vec()?, [601; 1000]);
        // Arrays may be dropped while replays are queued.
        for _ in 0..3 {
            let mut graph = Graph::capture(device.zeros([1000])?, |x| {
                (0..50).try_for_each(|_| ct::launch(increment, 16, (&mut *x,)))
            })?;
            graph.replay_on(&streams[2])?;
            drop(graph);
            assert_eq!(device.full([1000], 7)?.to_vec()?, [7; 1000]);
        }
    }
    Ok(())
}

#[test]
fn kernels_that_start_early_are_captured() -> Result<()> {
    fn double(x: ArrayMut<i32, 1>) {
        ct::grid_dependency_control_wait();
        x.store(ct::bid(0), x.load(ct::bid(0), [TILE]) * 2);
        ct::grid_dependency_control_launch_dependents();
    }
    for device in devices() {
        let mut graph = Graph::capture((device.full([500], 1)?, device.zeros([500])?), |(x, y)| {
            // SAFETY: no access precedes the wait.
            let launch = unsafe { ct::Launch::new(8).programmatic_dependent_launch() };
            (0..4).try_for_each(|_| launch.launch(double, (&mut *x,)))?;
            y.copy_from_array(&x.view())?;
            launch.launch(double, (&mut *y,))
        })?;
        graph.replay()?;
        graph.replay()?;
        assert_eq!((graph.state().0.to_vec()?[499], graph.state().1.to_vec()?[0]), (256, 512));
    }
    Ok(())
}

#[test]
fn work_that_graphs_cannot_record_is_an_error() -> Result<()> {
    /// Returns the error of a closure.
    #[track_caller]
    fn refusal<S: GraphResource>(state: S, work: impl FnMut(&mut S) -> Result<()> + Send) -> String {
        Graph::capture(state, work).expect_err("no graph").to_string()
    }
    for device in devices() {
        let other = ramp(device, 64)?;
        let text = refusal(device.zeros([64])?, |y| ct::launch(axpy, 1, (&other, y, 1.0)));
        assert!(text.contains("kernel `axpy` reads an array of 256 bytes that the graph does not hold"), "{text}");
        let text = refusal(device.zeros([64])?, |y| y.copy_from_array(&other.view()));
        assert!(text.contains("a copy reads"), "{text}");
        let text = refusal((), |()| device.zeros::<f32, 1>([3]).map(drop));
        assert!(text.contains("making an array is no work of a graph") && text.contains("graph/tests.rs"), "{text}");
        let text = refusal(device.zeros([3])?, |x| x.copy_from(&[1, 2, 3]));
        assert!(
            text.contains("a copy from the host is no work of a graph") && text.contains("graph/tests.rs"),
            "{text}"
        );
        let text = refusal(device.zeros::<i32, 1>([3])?, |x| x.to_vec().map(drop));
        assert!(text.contains("a copy to the host is no work of a graph") && text.contains("graph/tests.rs"), "{text}");
        let text = refusal((device.zeros::<i32, 2>([4, 4])?, device.zeros([4, 4])?), |(x, y)| {
            y.copy_from_array(&x.transpose()?)
        });
        assert!(text.contains("a copy of or into a view with gaps") && text.contains("graph/tests.rs"), "{text}");
        let text = refusal(device.zeros::<i32, 1>([3])?, |x| ct::launch(copy, 1, (&*x, ct::NewArray::zeros([3]))));
        assert!(text.contains("kernel `copy` makes a `NewArray`") && text.contains("graph/tests.rs"), "{text}");
        let text = refusal((), |()| Graph::capture((), |()| Ok(())).map(drop));
        assert!(text.contains("a graph is no work of a graph"), "{text}");
        assert!(refusal((), |()| Ok(())).contains("a graph of nothing"));
        let text = refusal(device.zeros([3])?, |x| {
            ct::launch(increment, 1, (x,))?;
            Err(Error::argument("of the closure"))
        });
        assert!(text.contains("of the closure"), "{text}");
        // After all other work that this thread launches as usual.
        let mut x = device.zeros([3])?;
        ct::launch(increment, 1, (&mut x,))?;
        assert_eq!(x.to_vec()?, [1; 3]);
    }
    Ok(())
}

#[test]
fn a_panic_ends_the_recording() -> Result<()> {
    let caught = std::panic::catch_unwind(|| {
        let state = Device::cpu().zeros([3]).expect("an array");
        Graph::capture(state, |x| {
            ct::launch(increment, 1, (x,))?;
            panic!("of the closure")
        })
        .map(drop)
    });
    assert!(caught.is_err() && !recorder::is_on());
    let graph = Graph::capture(Device::cpu().zeros([3])?, |x| ct::launch(increment, 1, (x,)))?;
    assert_eq!(graph.len(), 1);
    Ok(())
}

#[test]
fn a_state_that_fails_to_record_is_tried_again() -> Result<()> {
    for device in devices() {
        let mut graph = Graph::capture((Some(device.zeros([3])?), 1), |(x, _)| {
            let x = x.as_mut().ok_or_else(|| Error::argument("it is gone"))?;
            ct::launch(increment, 1, (x,))
        })?;
        let x = graph.state_mut().0.take();
        assert!(graph.replay().is_err() && graph.replay().is_err());
        graph.state_mut().0 = x;
        graph.replay()?;
        assert_eq!(graph.state().0.as_ref().expect("it is back").to_vec()?, [1; 3]);
    }
    Ok(())
}

#[test]
fn shared_arrays_are_not_written() -> Result<()> {
    // A unique array that becomes a shared one during its recording.
    let mut array = Some(Device::cpu().zeros::<i32, 1>([3])?);
    let state: Option<&'static DeviceArray<i32, 1>> = None;
    let error = Graph::capture(state, |shared| {
        if let Some(mut array) = array.take() {
            ct::launch(increment, 1, (&mut array,))?;
            *shared = Some(Box::leak(Box::new(array)));
        }
        Ok(())
    })
    .expect_err("a write");
    assert!(error.to_string().contains("writes an array of 12 bytes"), "{error}");
    Ok(())
}

#[test]
fn graphs_move_between_threads() -> Result<()> {
    for device in devices() {
        let mut graph = Graph::capture(device.zeros([64])?, |x| ct::launch(increment, 1, (x,)))?;
        let mut graph = std::thread::spawn(move || graph.replay().map(|()| graph)).join().expect("no panic")?;
        graph.replay()?;
        assert_eq!(graph.into_state().to_vec()?, [2; 64]);
    }
    Ok(())
}

#[test]
fn assertions_of_replays_are_noticed() -> Result<()> {
    fn small(x: Array<i32, 1>) {
        ct::assert!(x.load(0, [4]).lt(5), "too large");
    }
    // On a GPU, any waiting thread may receive the failure, such as that of another test.
    let mut graph = Graph::capture(Device::cpu().zeros([4])?, |x| ct::launch(small, 1, (&*x,)))?;
    graph.replay()?;
    graph.state_mut().copy_from(&[1, 2, 9, 3])?;
    let error = graph.replay().expect_err("9 is not below 5");
    assert!(error.to_string().contains("too large"), "{error}");
    Ok(())
}

#[test]
fn a_view_may_be_held() -> Result<()> {
    let x = ramp(Device::cpu(), 8)?;
    let state: (DeviceView<'_, f32, 1>, _) = (x.slice(0, 2..6)?, Device::cpu().zeros([4])?);
    let mut graph = Graph::capture(state, |(x, y)| y.copy_from_array(x))?;
    graph.replay()?;
    assert_eq!(graph.state().1.to_vec()?, [2.0, 3.0, 4.0, 5.0]);
    assert_eq!(format!("{graph:?}"), "Graph on the cpu device of [\"copy of 16 bytes\"]");
    Ok(())
}

/// Runs `record` on the one thread of a rayon pool, and `task` on the same thread at the first wait
/// of `record` for rayon.
fn interrupted<X: Send, Y: Send>(task: impl FnOnce() -> Y + Send, record: impl FnOnce() -> X + Send) -> (X, Y) {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a pool");
    let mut done = None;
    let recorded = pool.install(|| {
        rayon::scope(|scope| {
            let done = &mut done;
            scope.spawn(move |_| *done = Some(task()));
            record()
        })
    });
    (recorded, done.expect("the task ran"))
}

#[test]
fn tasks_of_a_pool_are_done_while_a_graph_is_recorded() -> Result<()> {
    for device in devices() {
        // All kinds of work of a task: launches, copies, new arrays, copies from and to the host, a
        // graph and its replay.
        let task = || -> Result<Vec<i32>> {
            assert!(recorder::is_on(), "it interrupts a recording");
            let (mut x, mut y) = (device.array(&[1, 2, 3], [3])?, device.zeros([3])?);
            ct::launch(increment, 1, (&mut x,))?;
            y.copy_from_array(&x.view())?;
            let (.., mut z) = ct::launch_with_outputs(copy, 1, (&y, ct::NewArray::zeros([3])))?;
            Graph::capture(&mut z, |z| ct::launch(increment, 1, (&mut **z,)))?.replay()?;
            z.view_mut().slice(0, ..1)?.copy_from(&[7])?;
            z.to_vec()
        };
        let state = device.zeros([3])?;
        let record = || {
            Graph::capture(state, |x| {
                rayon::yield_now();
                ct::launch(increment, 1, (&mut *x,))?;
                rayon::join(|| (), || ct::launch(increment, 1, (&mut *x,))).1
            })
        };
        let (graph, done) = interrupted(task, record);
        let mut graph = graph?;
        assert_eq!((done?, graph.len()), (vec![7, 4, 5], 2));
        graph.replay()?;
        assert_eq!(graph.state().to_vec()?, [2; 3]);
    }
    Ok(())
}

#[test]
fn a_task_reads_the_shared_arrays_of_a_graph() -> Result<()> {
    for device in devices() {
        let (x, mut sum) = (device.full([TILE], 1.0f32)?, device.zeros([TILE])?);
        let task = || ct::launch(axpy, 1, (&x, &mut sum, 5.0));
        let state = (&x, device.zeros([TILE])?);
        let record = || {
            Graph::capture(state, |(x, y)| {
                rayon::yield_now();
                ct::launch(axpy, 1, (*x, &mut *y, 2.0))
            })
        };
        let (graph, done) = interrupted(task, record);
        done?;
        assert_eq!((graph?.len(), sum.to_vec()?), (1, vec![5.0; TILE]));
    }
    Ok(())
}

#[test]
fn foreign_work_on_a_thread_of_a_pool_is_an_error() -> Result<()> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a pool");
    for device in devices() {
        let (x, mut other) = (device.zeros::<i32, 1>([TILE])?, device.zeros([TILE])?);
        let mut shared = Graph::capture(device.zeros([TILE])?, |x| ct::launch(increment, 1, (x,)))?;
        let refused = |result: Result<usize>, what: &str| {
            let text = result.expect_err("no graph").to_string();
            assert!(text.contains(what) && text.contains("graph/tests.rs") && text.contains("rayon"), "{text}");
        };
        let (y, other, shared) = (device.zeros::<i32, 1>([TILE])?, &mut other, &mut shared);
        // Arrays that the graph does not hold, arrays that it only shares, no arrays, replays.
        pool.install(|| -> Result<()> {
            let mut y = y;
            let wrong = Graph::capture(&mut y, |y| {
                ct::launch(increment, 1, (&mut **y,))?;
                ct::launch(increment, 1, (&mut *other,))
            });
            refused(wrong.map(|graph| graph.len()), "kernel `increment` ran at once");
            let wrong = Graph::capture(&mut y, |y| {
                ct::launch(increment, 1, (&mut **y,))?;
                other.copy_from_array(&x.view())
            });
            refused(wrong.map(|graph| graph.len()), "a copy between arrays ran at once");
            let wrong =
                Graph::capture(&x, |x| ct::launch(|x: Array<i32, 1>| ct::assert!(x.load(0, [1]).eq(0)), 1, (*x,)));
            refused(wrong.map(|graph| graph.len()), "ran at once");
            let wrong = Graph::capture((), |()| shared.replay());
            refused(wrong.map(|graph| graph.len()), "the replay of another graph ran at once");
            // An array that the closure moves into the state is not mistaken for another one.
            let mut spare = Some(device.zeros([TILE])?);
            let wrong = Graph::capture(None::<DeviceArray<i32, 1>>, |x| {
                let x = x.get_or_insert_with(|| spare.take().expect("once"));
                ct::launch(increment, 1, (x,))
            });
            refused(wrong.map(|graph| graph.len()), "kernel `increment` ran at once");
            // Certain errors are the same as on other threads.
            let error =
                Graph::capture(&mut y, |y| y.copy_from(&[0; TILE])).expect_err("no work of a graph").to_string();
            assert!(error.contains("a copy from the host is no work of a graph"), "{error}");
            let error =
                Graph::capture(&mut y, |y| ct::launch(copy, 1, (&x, &mut **y))).expect_err("not held").to_string();
            assert!(error.contains("that the graph does not hold"), "{error}");
            let error = Graph::capture(&mut y, |y| ct::launch(copy, 1, (&**y, ct::NewArray::zeros([3]))));
            assert!(error.expect_err("a new array").to_string().contains("makes a `NewArray`"));
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn a_replay_inside_of_a_kernel_is_an_error() -> Result<()> {
    let graph = Graph::capture(Device::cpu().zeros([3])?, |x| ct::launch(increment, 1, (x,)))?;
    let (graph, mut y) = (std::cell::RefCell::new(graph), Device::cpu().zeros([3])?);
    let replays = |y: ArrayMut<i32, 1>| {
        let error = graph.borrow_mut().replay().expect_err("a kernel is traced").to_string();
        assert!(
            error.contains("kernel `increment` is launched inside of another kernel")
                && error.contains("graph/tests.rs"),
            "{error}"
        );
        y.store(0, ct::ones([TILE]));
    };
    ct::launch(replays, 1, (&mut y,))?;
    let graph = graph.into_inner();
    assert_eq!((y.to_vec()?, graph.into_state().to_vec()?), (vec![1; 3], vec![0; 3]));
    Ok(())
}

//! Awaiting a GPU: `Stream::completion` is a future for any executor; here one of a few lines.
//! `cargo run --example future`

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::Thread;

use cutlet as ct;
use cutlet::prelude::*;

fn square(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
    let x = x.load(ct::bid(0), [1024]);
    y.store(ct::bid(0), x * x);
}

/// The sum of the squares of some numbers. During the work of the GPU, the executor may run other
/// tasks.
async fn sum_of_squares(device: ct::Device, numbers: &[f32]) -> ct::Result<f32> {
    let stream = device.stream()?;
    let x = device.array(numbers, [numbers.len()])?;
    let mut y = device.zeros([numbers.len()])?;
    let blocks = numbers.len().div_ceil(1024);
    ct::Launch::new(blocks).stream(&stream).launch(square, (&x, &mut y))?;
    stream.completion().await?;
    Ok(y.to_vec()?.iter().sum())
}

/// Wakes a thread that sleeps.
struct Sleeper(Thread);

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A minimal executor, in place of tokio, smol and others.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Arc::new(Sleeper(std::thread::current())).into();
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Runs it; public for the tests.
pub fn main() -> anyhow::Result<()> {
    let device = ct::Device::first()?;
    let sum = block_on(sum_of_squares(device, &[2.0; 10_000]))?;
    anyhow::ensure!(sum == 40_000.0, "{sum}");
    println!("future: {sum} on {}", device.name());
    Ok(())
}

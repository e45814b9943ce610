//! Times of the cpu device, which are those of the host: criterion gets the time of the work.

use std::cell::Cell;
use std::time::Duration;

use criterion::Criterion;
use criterion::measurement::Measurement;
use cutlet as ct;
use cutlet_criterion::{DeviceTime, device_time};

const PAUSE: Duration = Duration::from_millis(2);

fn measurement() -> DeviceTime {
    DeviceTime::new(&ct::Device::cpu().default_stream())
}

#[test]
fn it_is_the_time_between_two_points_of_the_stream() {
    let time = measurement();
    let before = time.start();
    std::thread::sleep(PAUSE);
    let taken = time.end(before);
    assert!(taken >= PAUSE && taken < PAUSE * 100, "{taken:?}");
    assert_eq!(time.add(&time.zero(), &taken), taken);
    assert_eq!(time.to_f64(&Duration::from_micros(3)), 3000.0);
    let mut values = [2_500_000.0];
    assert_eq!((time.formatter().scale_values(2e6, &mut values), values), ("ms", [2.5]));
}

#[test]
fn iterations_are_counted() -> ct::Result<()> {
    let stream = ct::Device::cpu().default_stream();
    let count = Cell::new(0);
    let taken = device_time(&stream, 5, || {
        count.set(count.get() + 1);
        std::thread::sleep(PAUSE);
        Ok(())
    })?;
    assert_eq!(count.get(), 6); // one warms up
    assert!(taken >= PAUSE * 5, "{taken:?}");
    let no = || ct::Device::cpu().array(&[0u8], [2]).map(drop);
    assert!(device_time(&stream, 5, no).is_err());
    Ok(())
}

#[test]
fn criterion_takes_it() {
    let mut criterion = Criterion::default()
        .with_measurement(measurement())
        .sample_size(10)
        .warm_up_time(PAUSE)
        .measurement_time(PAUSE * 20)
        .without_plots();
    let count = Cell::new(0);
    criterion.bench_function("pause", |b| {
        b.iter(|| {
            count.set(count.get() + 1);
            std::thread::sleep(PAUSE / 4);
        })
    });
    assert!(count.get() >= 10, "{}", count.get());
}

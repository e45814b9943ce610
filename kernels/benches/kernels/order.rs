//! Rows of `cutlet_kernels::order`.

use cutlet as ct;
use cutlet::{Device, DeviceArray};
use cutlet_kernels::order::{
    Combine, Direction, Draws, Prefix, RadixSort, Sampling, Selected, compact_if, greedy, histogram, prefix,
    segmented_sort_keys, top_k,
};

use crate::row::{Row, Work};

/// Returns random words on a GPU. Values do not matter to the cost model and to ptxas.
fn words(device: Device, n: usize) -> ct::Result<DeviceArray<u32, 1>> {
    if device.target().is_none() {
        return device.zeros([n]);
    }
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    device.from_fn([n], |_| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 32) as u32
    })
}

fn sort(log: u32) -> Row {
    let n = 1usize << log;
    Row::new(
        format!("sort u32 2^{log}"),
        // A pass counts, and four passes read and write.
        Work::bytes(4.0 * n as f64 * 9.0),
        move |device| Ok((words(device, n)?, device.zeros([n])?, RadixSort::<u32>::new(device, n)?)),
        |(x, y, sort)| sort.keys(&x.device().default_stream(), x.view(), y.view_mut(), Direction::Ascending),
    )
}

fn pairs(log: u32) -> Row {
    let n = 1usize << log;
    Row::new(
        format!("sort u32 with u32 2^{log}"),
        Work::bytes(4.0 * n as f64 * 17.0),
        move |device| {
            let sort = RadixSort::<u32, u32>::with_values(device, n)?;
            Ok((words(device, n)?, device.zeros([n])?, device.zeros([n])?, device.zeros([n])?, sort))
        },
        |(x, v, y, w, sort)| {
            let (from, to) = ((x.view(), v.view()), (y.view_mut(), w.view_mut()));
            sort.pairs(&x.device().default_stream(), from, to, Direction::Ascending)
        },
    )
}

/// Returns random numbers of a normal distribution on a GPU.
fn normal(device: Device, shape: [usize; 2]) -> ct::Result<DeviceArray<f32, 2>> {
    if device.target().is_none() {
        return device.zeros(shape);
    }
    device.random(shape, ct::random::Random::Normal, 1)
}

fn others() -> Vec<Row> {
    let n = 1usize << 28;
    let scan = Row::new(
        "prefix sum i32 2^28",
        Work::bytes(8.0 * n as f64),
        move |device| Ok((device.zeros::<i32, 1>([n])?, device.zeros([n])?)),
        |(x, y)| {
            let form = (Combine::Sum, Prefix::Inclusive);
            prefix(&x.device().default_stream(), x.view(), y.view_mut(), form)
        },
    );
    let wide = Row::new(
        "prefix sum f64 2^27",
        Work::bytes(8.0 * n as f64),
        move |device| Ok((device.zeros::<f64, 1>([n / 2])?, device.zeros([n / 2])?)),
        |(x, y)| {
            let form = (Combine::Sum, Prefix::Inclusive);
            prefix(&x.device().default_stream(), x.view(), y.view_mut(), form)
        },
    );
    let compaction = Row::new(
        "compact u32 2^28",
        // Half of the elements are kept.
        Work::bytes(6.0 * n as f64),
        move |device| Ok((words(device, n)?, device.zeros([n])?, device.zeros([1])?)),
        |(x, y, count)| {
            let results = (y.view_mut(), count.view_mut());
            compact_if(&x.device().default_stream(), x.view(), results, |x| (x & 1).eq(0))
        },
    );
    let counts = Row::new(
        "histogram u8 2^28",
        Work::bytes(n as f64),
        move |device| {
            let bytes = if device.target().is_none() { device.zeros([n])? } else { bytes(device, n)? };
            Ok((bytes, device.zeros([256])?))
        },
        |(x, counts)| histogram(&x.device().default_stream(), x.view(), counts.view_mut()),
    );
    let largest = Row::new(
        "top-k f32 64 131072 2048",
        Work::bytes(4.0 * 64.0 * 131072.0),
        move |device| Ok((normal(device, [64, 131072])?, device.zeros([64, 2048])?, device.zeros([64, 2048])?)),
        |(x, values, positions)| {
            let results = (values.view_mut(), positions.view_mut());
            top_k(&x.device().default_stream(), x.view(), results, Selected::Unsorted)
        },
    );
    let few = Row::new(
        "top-k f32 65536 128 8",
        Work::bytes(4.0 * 65536.0 * 128.0),
        move |device| Ok((normal(device, [65536, 128])?, device.zeros([65536, 8])?, device.zeros([65536, 8])?)),
        |(x, values, positions)| {
            let results = (values.view_mut(), positions.view_mut());
            top_k(&x.device().default_stream(), x.view(), results, Selected::Sorted)
        },
    );
    vec![scan, wide, compaction, counts, largest, few]
}

fn bytes(device: Device, n: usize) -> ct::Result<DeviceArray<u8, 1>> {
    device.from_fn([n], |[i]| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 47) as u8)
}

/// Sampling at the vocabulary of Llama 3.
fn samples() -> Vec<Row> {
    let [rows, columns] = [128, 128_256];
    let work = Work::bytes(4.0 * (rows * columns) as f64);
    let open = move |device: Device| {
        let (k, p) = (device.full([rows], 50)?, device.full([rows], 0.9f32)?);
        Ok((normal(device, [rows, columns])?, k, p, device.zeros([rows])?))
    };
    let seed = Draws::Seed { seed: 1, offset: 0 };
    vec![
        Row::new("sample f32 128 128256", work, open, move |(x, _, _, tokens)| {
            Sampling::new().sample(&x.device().default_stream(), x.view(), seed, tokens.view_mut())
        }),
        Row::new("sample top-p f32 128 128256", work, open, move |(x, _, p, tokens)| {
            let sampling = Sampling::new().top_p(p.view());
            sampling.sample(&x.device().default_stream(), x.view(), seed, tokens.view_mut())
        }),
        Row::new("sample top-k top-p f32 128 128256", work, open, move |(x, k, p, tokens)| {
            let sampling = Sampling::new().top_k(k.view()).top_p(p.view());
            sampling.sample(&x.device().default_stream(), x.view(), seed, tokens.view_mut())
        }),
        Row::new("greedy f32 128 128256", work, open, |(x, _, _, tokens)| {
            greedy(&x.device().default_stream(), x.view(), tokens.view_mut())
        }),
    ]
}

fn wide_sort() -> Row {
    let n = 1usize << 26;
    Row::new(
        "sort u64 2^26",
        Work::bytes(8.0 * n as f64 * 17.0),
        move |device| {
            let x = device.zeros::<u64, 1>([n])?;
            Ok((x, device.zeros([n])?, RadixSort::<u64>::new(device, n)?))
        },
        |(x, y, sort)| sort.keys(&x.device().default_stream(), x.view(), y.view_mut(), Direction::Ascending),
    )
}

fn argsort() -> Row {
    let n = 1usize << 26;
    Row::new(
        "argsort f32 2^26",
        Work::bytes(4.0 * n as f64 * 16.0),
        move |device| {
            let x = normal(device, [1, n])?.into_shape([n])?;
            Ok((x, device.zeros([n])?, device.zeros([n])?, RadixSort::<f32>::with_values(device, n)?))
        },
        |(x, y, positions, sort)| {
            let results = (y.view_mut(), positions.view_mut());
            sort.positions(&x.device().default_stream(), x.view(), results, Direction::Ascending)
        },
    )
}

fn segments() -> Row {
    let (n, each) = (1usize << 24, 1024);
    Row::new(
        "segmented sort u32 2^24 by 1024",
        Work::bytes(8.0 * n as f64),
        move |device| {
            let offsets: Vec<i32> = (0..=n / each).map(|i| (i * each) as i32).collect();
            Ok((words(device, n)?, device.array(&offsets, [n / each + 1])?, device.zeros([n])?))
        },
        |(x, offsets, y)| {
            let stream = x.device().default_stream();
            segmented_sort_keys(&stream, x.view(), offsets.view(), y.view_mut(), Direction::Ascending)
        },
    )
}

/// Returns the rows.
pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    rows.extend([24, 26, 28].map(sort));
    rows.extend([24, 26, 28].map(pairs));
    rows.extend([wide_sort(), argsort(), segments()]);
    rows.extend(others());
    rows.extend(samples());
    rows
}

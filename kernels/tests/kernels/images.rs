//! Tests of `cutlet_kernels::images`.

use cutlet as ct;
use cutlet::element::f16;
use cutlet_kernels::Number;
use cutlet_kernels::images::{Convolution, Window, average_pool, max_pool, resize_bilinear};

use crate::support::{close, device, random};

/// An array on the host, row-major.
struct Host<const R: usize> {
    shape: [usize; R],
    elements: Vec<f64>,
}

impl<const R: usize> Host<R> {
    fn at(&self, index: [usize; R]) -> f64 {
        self.elements[index.iter().zip(&self.shape).fold(0, |at, (i, extent)| at * extent + i)]
    }

    fn zeros(shape: [usize; R]) -> Host<R> {
        Host { shape, elements: vec![0.0; shape.iter().product()] }
    }

    fn add(&mut self, index: [usize; R], x: f64) {
        let at = index.iter().zip(&self.shape).fold(0, |at, (i, extent)| at * extent + i);
        self.elements[at] += x;
    }
}

/// Calls a function with the indices of each product of a convolution: of the image, of the
/// weights, of the result.
fn products(
    convolution: Convolution,
    [x, w, y]: [[usize; 4]; 3],
    mut product: impl FnMut([usize; 4], [usize; 4], [usize; 4]),
) {
    let Convolution { stride, padding, dilation, groups } = convolution;
    for b in 0..y[0] {
        for p in 0..y[1] {
            for q in 0..y[2] {
                for r in 0..w[0] {
                    for s in 0..w[1] {
                        let row = (p * stride[0] + r * dilation[0]).wrapping_sub(padding[0]);
                        let column = (q * stride[1] + s * dilation[1]).wrapping_sub(padding[1]);
                        if row >= x[1] || column >= x[2] {
                            continue;
                        }
                        for k in 0..w[3] {
                            let group = k / (w[3] / groups);
                            for c in 0..w[2] {
                                product([b, row, column, group * w[2] + c], [r, s, c, k], [b, p, q, k]);
                            }
                        }
                    }
                }
            }
        }
    }
}

fn convolves<T: Number>(convolution: Convolution, x: [usize; 4], w: [usize; 4], error: f64) {
    let stream = device().default_stream();
    let y = convolution.output_shape(x, w);
    let host = |shape, elements| Host { shape, elements };
    let (images, exact_images) = random::<T, 4>(1, x, 1.0).unwrap();
    let (weights, exact_weights) = random::<T, 4>(2, w, 1.0).unwrap();
    let (gradient, exact_gradient) = random::<T, 4>(3, y, 1.0).unwrap();
    let [xs, ws, ys] = [host(x, exact_images), host(w, exact_weights), host(y, exact_gradient)];
    let [mut dx, mut dw, mut want] = [Host::zeros(x), Host::zeros(w), Host::zeros(y)];
    products(convolution, [x, w, y], |i, j, k| {
        want.add(k, xs.at(i) * ws.at(j));
        dx.add(i, ws.at(j) * ys.at(k));
        dw.add(j, xs.at(i) * ys.at(k));
    });
    let mut result = device().full(y, T::from_f64(9.0)).unwrap();
    convolution.forward(&stream, images.view(), weights.view(), result.view_mut()).unwrap();
    close(&result, &want.elements, error, error);

    // The gradients are those of elementary products: depthwise convolutions have them, too.
    let mut result = device().full(x, T::from_f64(9.0)).unwrap();
    convolution.input_gradient(&stream, gradient.view(), weights.view(), result.view_mut()).unwrap();
    close(&result, &dx.elements, error, error);
    let mut result = device().full(w, T::from_f64(9.0)).unwrap();
    convolution.weight_gradient(&stream, images.view(), gradient.view(), result.view_mut()).unwrap();
    close(&result, &dw.elements, 4.0 * error, error);
}

#[test]
fn convolution() {
    let plain = Convolution::default();
    let same = Convolution { padding: [1, 1], ..plain };
    convolves::<f32>(same, [3, 5, 9, 17], [3, 3, 17, 20], 1e-4);
    convolves::<f16>(same, [2, 6, 7, 16], [3, 3, 16, 40], 0.02);
    convolves::<f32>(plain, [2, 4, 6, 8], [1, 1, 8, 12], 1e-4);
    convolves::<f32>(Convolution { padding: [2, 0], dilation: [2, 3], ..plain }, [1, 9, 10, 3], [3, 2, 3, 5], 1e-4);
}

#[test]
fn convolution_with_shared_products() {
    let same = Convolution { padding: [1, 1], ..Convolution::default() };
    convolves::<f32>(same, [3, 5, 3, 60], [3, 3, 60, 60], 3e-4);
    convolves::<f32>(Convolution { stride: [2, 2], ..same }, [1, 6, 5, 130], [3, 3, 130, 140], 3e-4);
}

#[test]
fn convolution_with_strides() {
    let plain = Convolution::default();
    let halved = Convolution { stride: [2, 2], padding: [1, 1], ..plain };
    convolves::<f32>(halved, [2, 8, 9, 6], [3, 3, 6, 7], 1e-4);
    convolves::<f32>(Convolution { stride: [2, 2], padding: [3, 3], ..plain }, [1, 15, 16, 3], [7, 7, 3, 8], 2e-4);
    convolves::<f32>(Convolution { stride: [2, 2], ..plain }, [2, 7, 8, 6], [1, 1, 6, 7], 1e-4);
    convolves::<f32>(Convolution { stride: [3, 2], dilation: [2, 2], ..halved }, [1, 12, 11, 4], [3, 3, 4, 4], 1e-4);
    // Phases of one launch, with and without taps.
    convolves::<f32>(halved, [2, 8, 6, 32], [3, 3, 32, 5], 1e-4);
    convolves::<f32>(Convolution { stride: [2, 3], ..plain }, [1, 6, 9, 16], [1, 2, 16, 20], 1e-4);
}

#[test]
fn convolution_of_groups() {
    let same = Convolution { padding: [1, 1], groups: 3, ..Convolution::default() };
    convolves::<f32>(same, [2, 5, 4, 12], [3, 3, 4, 15], 1e-4);
    // Five of twenty groups are one.
    convolves::<f32>(Convolution { groups: 20, ..same }, [1, 4, 5, 180], [3, 2, 9, 120], 1e-4);
    // Depthwise: one result and two results for each channel.
    let depthwise = Convolution { groups: 10, ..same };
    convolves::<f32>(depthwise, [2, 5, 4, 10], [3, 3, 1, 10], 1e-4);
    convolves::<f32>(Convolution { stride: [2, 1], ..depthwise }, [1, 7, 6, 10], [3, 3, 1, 20], 1e-4);
    convolves::<f32>(Convolution { padding: [2, 2], ..depthwise }, [1, 9, 6, 10], [5, 4, 1, 20], 1e-4);
}

#[test]
fn convolution_with_bias_residual_and_activation() -> ct::Result<()> {
    for (groups, channels) in [(1, 6), (6, 6), (1, 70)] {
        let same = Convolution { padding: [1, 1], groups, ..Convolution::default() };
        let (x, w) = ([2, 5, 4, channels], [3, 3, channels / groups, channels]);
        let (images, xs) = random::<f32, 4>(1, x, 1.0)?;
        let (weights, ws) = random::<f32, 4>(2, w, 1.0)?;
        let (residual, mut want) = random::<f32, 4>(3, x, 1.0)?;
        let (bias, bs) = random::<f32, 1>(4, [channels], 1.0)?;
        let mut sums = Host { shape: x, elements: want.clone() };
        let (xs, ws) = (Host { shape: x, elements: xs }, Host { shape: w, elements: ws });
        products(same, [x, w, x], |i, j, k| sums.add(k, xs.at(i) * ws.at(j)));
        for (at, want) in want.iter_mut().enumerate() {
            *want = (sums.elements[at] + bs[at % channels]).max(0.0);
        }
        let mut y = device().zeros(x)?;
        let added = (Some(bias.view()), Some(residual.view()));
        let stream = device().default_stream();
        same.forward_with(&stream, images.view(), weights.view(), added, |sum| sum.relu(), y.view_mut())?;
        close(&y, &want, 1e-4, 1e-4);
    }
    Ok(())
}

#[test]
fn convolution_of_views_and_of_nothing() -> ct::Result<()> {
    let stream = device().default_stream();
    let plain = Convolution::default();
    let (images, xs) = random::<f32, 4>(1, [2, 6, 8, 10], 1.0)?;
    let (weights, ws) = random::<f32, 4>(2, [1, 1, 4, 3], 1.0)?;
    let mut y = device().zeros([2, 6, 4, 3])?;
    plain.forward(&stream, images.view().step(2, 2)?.slice(3, 3..7)?, weights.view(), y.view_mut())?;
    let xs = Host { shape: [2, 6, 8, 10], elements: xs };
    let mut want = Host::zeros([2, 6, 4, 3]);
    products(plain, [[2, 6, 4, 4], [1, 1, 4, 3], [2, 6, 4, 3]], |[b, i, j, c], [.., d, e], k| {
        want.add(k, xs.at([b, i, 2 * j, 3 + c]) * ws[d * 3 + e]);
    });
    close(&y, &want.elements, 1e-5, 1e-5);

    let fault = plain.forward(&stream, images.view(), weights.view(), y.view_mut()).unwrap_err();
    assert!(fault.to_string().contains("1 groups of images [2, 6, 8, 10] and of weights [1, 1, 4, 3] do not fit"));
    let (x, mut none) = (device().zeros::<f32, 4>([0, 6, 8, 4])?, device().zeros([0, 6, 8, 3])?);
    plain.forward(&stream, x.view(), weights.view(), none.view_mut())?;
    let mut dw = device().full([1, 1, 4, 3], 1.0f32)?;
    plain.weight_gradient(&stream, x.view(), none.view(), dw.view_mut())?;
    assert_eq!(dw.to_vec()?, [0.0; 12]);
    Ok(())
}

#[test]
fn pooling() -> ct::Result<()> {
    let stream = device().default_stream();
    for (shape, size, stride, padding) in [
        ([2, 9, 12, 5], [3, 3], [2, 2], [1, 1]),
        ([1, 7, 6, 70], [2, 4], [1, 3], [0, 2]),
        ([3, 4, 4, 1], [4, 4], [4, 4], [0, 0]),
    ] {
        let window = Window { size, stride, padding };
        let (x, exact) = random::<f32, 4>(7, shape, 1.0)?;
        let exact = Host { shape, elements: exact };
        let y = window.output_shape(shape);
        let (mut largest, mut means) = (Vec::new(), Vec::new());
        for at in 0..y.iter().product::<usize>() {
            let [b, p, q, c] = [at / (y[1] * y[2] * y[3]), at / (y[2] * y[3]) % y[1], at / y[3] % y[2], at % y[3]];
            let mut own = Vec::new();
            for r in 0..size[0] {
                for s in 0..size[1] {
                    let row = (p * stride[0] + r).wrapping_sub(padding[0]);
                    let column = (q * stride[1] + s).wrapping_sub(padding[1]);
                    if row < shape[1] && column < shape[2] {
                        own.push(exact.at([b, row, column, c]));
                    }
                }
            }
            largest.push(own.iter().copied().fold(f64::NEG_INFINITY, f64::max));
            means.push(own.iter().sum::<f64>() / own.len() as f64);
        }
        let mut result = device().zeros(y)?;
        max_pool(&stream, window, x.view(), result.view_mut())?;
        close(&result, &largest, 0.0, 0.0);
        average_pool(&stream, window, x.view(), result.view_mut())?;
        close(&result, &means, 1e-6, 1e-6);
    }
    Ok(())
}

#[test]
fn resizing() -> ct::Result<()> {
    for (from, to) in [([3, 5], [6, 10]), ([7, 9], [4, 3]), ([1, 1], [2, 3]), ([4, 6], [4, 40])] {
        let shape = [2, from[0], from[1], 3];
        let (x, exact) = random::<f32, 4>(8, shape, 1.0)?;
        let exact = Host { shape, elements: exact };
        let place = |at: usize, axis: usize| {
            let position = (at as f64 + 0.5) * from[axis] as f64 / to[axis] as f64 - 0.5;
            let position = position.max(0.0);
            let low = (position.floor() as usize).min(from[axis] - 1);
            (low, (low + 1).min(from[axis] - 1), position - low as f64)
        };
        let mut want = Vec::new();
        for b in 0..2 {
            for p in 0..to[0] {
                for q in 0..to[1] {
                    let ((i, k, u), (j, l, v)) = (place(p, 0), place(q, 1));
                    for c in 0..3 {
                        let row = |i| (1.0 - v) * exact.at([b, i, j, c]) + v * exact.at([b, i, l, c]);
                        want.push((1.0 - u) * row(i) + u * row(k));
                    }
                }
            }
        }
        let mut y = device().zeros([2, to[0], to[1], 3])?;
        resize_bilinear(&device().default_stream(), x.view(), y.view_mut())?;
        close(&y, &want, 1e-5, 1e-5);
    }
    Ok(())
}

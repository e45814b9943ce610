//! Errors of clusters, with their places in the kernel, and legal uses.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{Error, Target};

type Kernel = fn(Array<i32, 1>, ArrayMut<i32, 1>);

/// The message of a launch of four tile blocks on the cpu device.
fn refused(kernel: Kernel) -> String {
    let device = ct::Device::cpu();
    let (x, mut y) = (device.full([4], 1).unwrap(), device.zeros([4]).unwrap());
    let error = ct::launch(kernel, 4, (&x, &mut y)).unwrap_err();
    assert!(matches!(error, Error::Kernel(_)), "{error}");
    error.to_string()
}

#[test]
fn exchanges_under_control_flow_that_varies_are_errors() {
    let branch: Kernel = |x, y| {
        let cluster = ct::cluster(2);
        let tile = x.load(ct::bid(0), [1]);
        ct::if_then(cluster.rank().eq(0), || y.store(ct::bid(0), cluster.sum(tile)));
    };
    let trips: Kernel = |x, y| {
        let cluster = ct::cluster(2);
        let tile = x.load(ct::bid(0), [1]);
        y.store(ct::bid(0), ct::fold(..cluster.rank(), tile, |tile, _| cluster.sum(tile)));
    };
    let data: Kernel = |x, y| {
        let cluster = ct::cluster(2);
        let tile = x.load(ct::bid(0), [1]);
        let n = x.load_scalar(0);
        y.store(ct::bid(0), ct::fold(..n, tile, |tile, _| cluster.sum(tile)));
    };
    let until: Kernel = |x, y| {
        let cluster = ct::cluster(2);
        let end = ct::loop_with_control(x.load(ct::bid(0), [1]), |tile, control| {
            control.break_if((ct::bid(0) % 2).gt(0), tile);
            cluster.sum(tile)
        });
        y.store(ct::bid(0), end);
    };
    for (kernel, what) in
        [(branch, "this condition"), (trips, "iterations"), (data, "iterations"), (until, "iterations of this loop")]
    {
        let message = refused(kernel);
        assert!(message.contains("unequally often") && message.contains(what), "{message}");
        assert!(message.matches("cluster.rs:").count() >= 2, "both places: {message}");
    }
    let returns: Kernel = |x, y| {
        let cluster = ct::cluster(2);
        ct::return_if(ct::bid(0).gt(2));
        y.store(ct::bid(0), cluster.sum(x.load(ct::bid(0), [1])));
    };
    let message = refused(returns);
    assert!(message.contains("return early"), "{message}");
    let two: Kernel = |x, y| {
        let tile = x.load(ct::bid(0), [1]);
        y.store(ct::bid(0), ct::cluster(2).sum(tile) + ct::cluster(4).sum(tile));
    };
    let message = refused(two);
    assert!(message.contains("one cluster size"), "{message}");
    let three: Kernel = |x, y| y.store(ct::bid(0), ct::cluster(3).sum(x.load(ct::bid(0), [1])));
    let message = refused(three);
    assert!(message.contains("2, 4, 8 or 16"), "{message}");
}

#[test]
fn conditions_that_are_equal_within_a_cluster_are_legal() {
    let kernel: Kernel = |x, y| {
        let cluster = ct::cluster(2);
        let tile = x.load(ct::bid(0), [1]) + ct::bid(0);
        // The index of the cluster, the result of an exchange, and numbers of the launch are equal.
        let largest = cluster.reduce_max(tile).item();
        let sum = ct::if_else(cluster.id().eq(0), || cluster.sum(tile), || tile);
        let sum = ct::fold(..largest, sum, |sum, _| cluster.sum(sum));
        let sum = ct::while_loop(sum, |sum| cluster.sum(sum).item().lt(100), |sum| cluster.sum(sum));
        y.store(ct::bid(0), sum);
    };
    let device = ct::Device::cpu();
    let (x, mut y) = (device.full([4], 1).unwrap(), device.zeros([4]).unwrap());
    ct::launch(kernel, 4, (&x, &mut y)).unwrap();
    // Cluster 0: 1 + 2 = 3 in both; two sums: 12; doubled below 100. Cluster 1: 3 and 4, four sums.
    let last = |mut sum: i32| {
        while 2 * sum < 100 {
            sum *= 2;
        }
        sum
    };
    let (first, second) = (last(3 << 2), last((3 + 4) << 3));
    assert_eq!(y.to_vec().unwrap(), [first, first, second, second]);
}

#[test]
fn targets_without_clusters_are_named() {
    let kernel: Kernel = |x, y| y.store(ct::bid(0), ct::cluster(2).sum(x.load(ct::bid(0), [64])));
    let [x, y] = [ct::ArraySpec::<i32, 1>::new([1 << 10]), ct::ArraySpec::<i32, 1>::new([1 << 10])];
    let inspect = || ct::inspect(kernel, (x, y.mutable()));
    let error = inspect().target(Target::SM_80).ptx().unwrap_err().to_string();
    assert!(error.contains("sm_90 or later") && error.contains("cluster.rs:"), "{error}");
    let ptx = inspect().target(Target::SM_90A).ptx().unwrap();
    assert!(ptx.contains(".reqnctapercluster 2, 1, 1") && ptx.contains("barrier.cluster.arrive.release"), "{ptx}");
    let exported = ct::aot::export(kernel, (x, y.mutable()), "sm_100".parse().unwrap(), ct::aot::Format::TileIr(None));
    let error = exported.err().unwrap().to_string();
    assert!(error.contains("cluster_all_gather"), "{error}");
}

//! Answers that are lost on their way from a server: what was done, and is heard of as an error.

use super::*;

/// A server is restarted between a request and its answer: asked again, it finds the file moved
/// away, which says nothing of where to.
#[tokio::test]
async fn a_swap_whose_answer_was_lost_is_unknown() {
    for errno in [Errno::NOENT, Errno::IO, Errno::STALE, Errno::NOMEM] {
        let bench = Bench::new().await;
        let tag = done(bench.swap(None, b"1").await);
        bench.probe().lose_next(Act::Replace, errno);
        let answer = bench.swap(Some(&tag), b"2").await;
        assert_eq!(kind(answer).0, "unknown", "{errno:?}");
        // Repeated, it is refused; and reading tells why.
        assert_eq!(bench.swap(Some(&tag), b"2").await, Answer::Refused);
        let found = done(bench.store.load(&key("CURRENT"), 10).await);
        assert_eq!(found.bytes, b"2", "{errno:?}");
        assert_eq!(bench.temporaries(), 0);
        done(bench.swap(Some(&found.tag), b"3").await);
    }
}

/// The same for a put, by a rename and by a link: repeated, it finds the name taken.
#[tokio::test]
async fn a_put_whose_answer_was_lost_is_unknown_until_it_is_repeated() {
    for errno in [Errno::NOENT, Errno::IO, Errno::STALE, Errno::NOMEM] {
        for act in [Act::Publish, Act::Link] {
            let bench = Bench::new().await;
            if act == Act::Link {
                bench.probe().break_next(Act::Publish, Errno::INVAL);
            }
            bench.probe().lose_next(act, errno);
            let answer = bench.put("shared/7/1", b"one").await;
            assert_eq!(kind(answer).0, "unknown", "{act:?} {errno:?}");
            assert_eq!(bench.put("shared/7/1", b"one").await, Answer::Refused);
            assert_eq!(fs::read(bench.path("shared/7/1")).unwrap(), b"one");
            assert_eq!(bench.temporaries(), 0);
        }
    }
}

/// What comes after a lost answer speaks of the later try alone.
#[tokio::test]
async fn what_is_in_doubt_does_not_fail_for_certain_later() {
    let bench = Bench::new().await;
    bench.probe().break_next(Act::Publish, Errno::NOENT);
    bench.probe().break_next(Act::Publish, Errno::NOSPC);
    assert_eq!(
        kind(bench.put("shared/7/1", b"one").await),
        ("unknown", FailureKind::NoSpace)
    );
}

#[tokio::test]
async fn a_delete_whose_answer_was_lost_is_unknown() {
    for errno in [Errno::IO, Errno::STALE, Errno::BUSY] {
        let bench = Bench::new().await;
        done(bench.put("shared/7/1", b"one").await);
        bench.probe().lose_next(Act::Unlink, errno);
        let name = key("shared/7/1");
        assert_eq!(kind(bench.store.delete(&name).await).0, "unknown");
        done(bench.store.delete(&name).await);
        assert_eq!(bench.names().await, [""; 0]);
    }
}

//! Tests that the database does to its callers what it is told to do.

use super::*;

fn with_table() -> Database {
    table_in(Database::new())
}

fn table_in(database: Database) -> Database {
    database.exec("CREATE TABLE t (n INTEGER)", &[]).unwrap();
    database
}

/// A database in a folder, and one in memory.
fn both() -> [Database; 2] {
    [with_table(), table_in(Database::in_memory())]
}

fn insert(database: &Database, n: i64) -> Result<(), Rollback> {
    database.exec("INSERT INTO t VALUES (?1)", &[n.into()]).map(|_| ()).map_err(|_| Rollback)
}

fn sum(database: &Database) -> i64 {
    database.number("SELECT sum(n) FROM t")
}

#[test]
fn a_transaction_that_is_rolled_back_leaves_nothing_and_its_parent_goes_on() {
    let database = with_table();
    let ended = database.transaction(&mut || {
        insert(&database, 1)?;
        let inner = database.transaction(&mut || {
            insert(&database, 10)?;
            Err(Rollback)
        });
        assert_eq!(inner, Ok(Ended::RolledBack));
        let inner = database.transaction(&mut || insert(&database, 100));
        assert_eq!(inner, Ok(Ended::Committed));
        assert_eq!(sum(&database), 0, "nothing is seen before the commit");
        Ok(())
    });
    assert_eq!((ended, sum(&database)), (Ok(Ended::Committed), 101));
    assert_eq!(database.transaction(&mut || insert(&database, 5).and(Err(Rollback))), Ok(Ended::RolledBack));
    assert_eq!(sum(&database), 101);
}

#[test]
fn a_crash_before_the_commit_leaves_nothing_and_lasts_until_the_database_is_reopened() {
    for ((n, kept), database) in
        [(0, 0), (1, 0), (2, 0), (3, 1)].into_iter().flat_map(|each| both().map(|database| (each, database)))
    {
        database.crash_before(n);
        let ended = database.transaction(&mut || insert(&database, 1));
        assert_eq!(ended.is_ok(), kept == 1, "{n}");
        assert!(database.exec("SELECT 1", &[]).is_err());
        assert!(database.has_crashed());
        database.reopen();
        assert_eq!(sum(&database), kept, "{n}");
        assert!(database.exec("SELECT 1", &[]).is_ok());
    }
}

#[test]
fn a_full_disk_rolls_back_the_whole_transaction_though_its_parts_ignore_the_error() {
    for (n, database) in (0..7).flat_map(|n| both().map(|database| (n, database))) {
        database.full(n);
        let ended = database.transaction(&mut || {
            let _ = insert(&database, 1);
            drop(database.transaction(&mut || insert(&database, 10)));
            let _ = insert(&database, 100);
            Ok(())
        });
        assert!(ended.is_err(), "{n}");
        assert_eq!(sum(&database), 0, "{n}");
        assert_eq!(database.transaction(&mut || insert(&database, 1)), Ok(Ended::Committed), "it lives on");
    }
}

#[test]
fn a_commit_that_is_held_back_is_seen_only_by_the_object_until_release_and_lost_in_a_crash() {
    let database = with_table();
    database.hold();
    assert_eq!(database.transaction(&mut || insert(&database, 1)), Ok(Ended::Committed));
    assert_eq!(database.transaction(&mut || insert(&database, 10).and(Err(Rollback))), Ok(Ended::RolledBack));
    assert_eq!(database.peek("SELECT sum(n) FROM t"), [[Value::Integer(1)]]);
    assert_eq!(sum(&database), 0);
    database.release();
    assert_eq!(sum(&database), 1);
    database.hold();
    assert_eq!(database.transaction(&mut || insert(&database, 100)), Ok(Ended::Committed));
    database.crash_at("SELECT");
    assert!(database.exec("SELECT 1", &[]).is_err() && database.has_crashed());
    database.reopen();
    assert_eq!(sum(&database), 1);
}

#[test]
fn a_statement_that_is_told_to_fail_fails_once() {
    for database in both() {
        database.fail(2);
        assert!(database.transaction(&mut || insert(&database, 1)).is_err(), "the commit fails");
        assert_eq!(sum(&database), 0);
        assert_eq!(database.transaction(&mut || insert(&database, 1)), Ok(Ended::Committed));
    }
}

#[test]
fn a_commit_that_is_held_back_is_lost_if_the_database_is_reopened_on_disk_and_in_memory() {
    for database in both() {
        for kept in 0..2 {
            database.hold();
            assert_eq!(database.transaction(&mut || insert(&database, 1)), Ok(Ended::Committed));
            assert_eq!(database.peek("SELECT count(*) FROM t"), [[Value::Integer(kept + 1)]]);
            database.reopen();
            assert_eq!(sum(&database), kept);
            database.hold();
            assert_eq!(database.transaction(&mut || insert(&database, 1)), Ok(Ended::Committed));
            database.release();
            assert_eq!(sum(&database), kept + 1);
        }
    }
}

#[test]
fn a_panic_rolls_back_its_open_transactions_and_no_commit_that_is_held_back() {
    for database in both() {
        database.hold();
        assert_eq!(database.transaction(&mut || insert(&database, 1)), Ok(Ended::Committed));
        let panics = || {
            drop(database.transaction(&mut || {
                drop(database.transaction(&mut || insert(&database, 10)));
                std::panic::resume_unwind(Box::new("told to panic"))
            }));
        };
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        database.unwind();
        assert_eq!(database.transaction(&mut || insert(&database, 100)), Ok(Ended::Committed));
        database.release();
        assert_eq!(sum(&database), 101);
    }
}

#[test]
fn a_copy_has_what_is_committed_and_is_independent_of_the_original() {
    for database in both() {
        assert_eq!(database.transaction(&mut || insert(&database, 1)), Ok(Ended::Committed));
        let copy = database.copy();
        assert_eq!(sum(&copy), 1);
        assert_eq!(copy.transaction(&mut || insert(&copy, 10)), Ok(Ended::Committed));
        drop(database.transaction(&mut || insert(&database, 100)));
        assert_eq!((sum(&database), sum(&copy), sum(&copy.copy())), (101, 11, 11));
    }
}

#[test]
#[should_panic = "nobody sees what is committed while a transaction is open"]
fn in_memory_reading_committed_rows_while_commits_are_held_back_panics() {
    let database = table_in(Database::in_memory());
    database.hold();
    sum(&database);
}

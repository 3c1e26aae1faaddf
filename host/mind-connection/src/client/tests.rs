//! Calls, commands and connections that are lost, against a listener that plays the controller.

use mind_api::message::Welcome;

use super::*;
use tokio::net::TcpListener;

const LIMIT: Duration = Duration::from_secs(5);

async fn take(connection: &mut Connection) -> Frame {
    frame::decode(&connection.next().await.unwrap().unwrap()).unwrap()
}

async fn give(connection: &mut Connection, frame: Frame) {
    connection
        .send(frame::encode(&frame).unwrap())
        .await
        .unwrap();
}

fn at(listener: &TcpListener) -> Endpoint {
    listener.local_addr().unwrap().to_string().parse().unwrap()
}

async fn accepted(listener: &TcpListener) -> Connection {
    frame::framed(Either::Left(listener.accept().await.unwrap().0))
}

/// A listener, and a client that is connected to it.
async fn pair(limit: Duration) -> (Connection, Client, mpsc::Receiver<ReceivedCommand>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = at(&listener);
    let client = tokio::spawn(Client::connect(endpoint, "test", limit));
    let mut connection = accepted(&listener).await;
    assert!(matches!(take(&mut connection).await, Frame::Hello(hello) if hello.name == "test"));
    give(
        &mut connection,
        Frame::Welcome(Welcome { version: VERSION }),
    )
    .await;
    let (client, commands) = client.await.unwrap().unwrap();
    (connection, client, commands)
}

#[tokio::test]
async fn answers_find_their_calls_in_any_order() {
    let (mut connection, client, _orders) = pair(LIMIT).await;
    let other = client.clone();
    let first = tokio::spawn(async move { other.call(Request::Status).await });
    let Frame::Request { id: first_id, .. } = take(&mut connection).await else {
        panic!("expected a request");
    };
    let second = tokio::spawn(async move {
        let unlink = Request::UnlinkArea {
            domain: 1,
            name: "x".into(),
        };
        client.call(unlink).await
    });
    let Frame::Request { id: second_id, .. } = take(&mut connection).await else {
        panic!("expected a request");
    };
    let refusal = Failure::new(Errno::ENOENT, "no area `x`");
    let body = Err(refusal.clone());
    give(
        &mut connection,
        Frame::Reply {
            id: second_id,
            body,
        },
    )
    .await;
    let body = Ok(Reply::Done);
    give(&mut connection, Frame::Reply { id: first_id, body }).await;
    assert_eq!(first.await.unwrap().unwrap(), Reply::Done);
    let error = second.await.unwrap().unwrap_err();
    assert!(matches!(error, ClientError::Refused(failure) if failure == refusal));
}

#[tokio::test]
async fn a_controller_that_goes_ends_every_call() {
    let (mut connection, client, mut commands) = pair(LIMIT).await;
    let call = tokio::spawn(async move { client.call(Request::Status).await });
    take(&mut connection).await;
    drop(connection);
    let error = call.await.unwrap().unwrap_err();
    assert!(matches!(error, ClientError::Lost(_)), "{error}");
    assert_eq!(commands.recv().await, None);
}

#[tokio::test]
async fn what_is_too_long_for_a_frame_is_refused_at_once() {
    let (mut connection, client, mut commands) = pair(LIMIT).await;
    let name = "x".repeat(frame::MAX_LENGTH);
    let error = client.call(Request::UnlinkArea { domain: 1, name });
    let error = error.await.unwrap_err();
    assert!(
        matches!(&error, ClientError::Refused(failure) if failure.errno == Errno::EINVAL),
        "{error}"
    );
    let body = Command::Identify;
    give(&mut connection, Frame::Command { id: 1, body }).await;
    let order = commands.recv().await.unwrap();
    let identity = mind_api::message::Identity {
        number: 0,
        incarnation: 1,
        pages: 1,
        processes: (0..200_000).map(|pid| (1, pid)).collect(),
    };
    let answer = Ok(Report::Identity(identity));
    client.answer_command(order.id, answer).unwrap();
    let Frame::Carried { id: 1, body } = take(&mut connection).await else {
        panic!("expected an answer");
    };
    let message = body.map(|_| ()).unwrap_err().message;
    assert!(message.contains("bytes"), "{message}");
}

#[tokio::test]
async fn a_connection_ends_with_the_last_client() {
    let (mut connection, client, _commands) = pair(LIMIT).await;
    let other = client.clone();
    drop(client);
    let call = tokio::spawn(async move { other.call(Request::Status).await });
    let Frame::Request { id, .. } = take(&mut connection).await else {
        panic!("expected a request");
    };
    let body = Ok(Reply::Done);
    give(&mut connection, Frame::Reply { id, body }).await;
    call.await.unwrap().unwrap();
    assert!(connection.next().await.is_none());
}

#[tokio::test]
async fn a_call_outlives_its_connection_and_is_made_again_under_its_number() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = at(&listener);
    let client = tokio::spawn(Client::connect(endpoint.clone(), "test", LIMIT));
    let mut connection = accepted(&listener).await;
    take(&mut connection).await;
    let welcome = Frame::Welcome(Welcome { version: VERSION });
    give(&mut connection, welcome.clone()).await;
    let (client, mut commands) = client.await.unwrap().unwrap();
    client.outlive_connection();
    let unlink = |name: &str| Request::UnlinkArea {
        domain: 1,
        name: name.into(),
    };
    let asked = |body| {
        let client = client.clone();
        tokio::spawn(async move { client.call(body).await })
    };
    let first = asked(unlink("a"));
    let Frame::Request { id, .. } = take(&mut connection).await else {
        panic!("expected a request");
    };
    let command = Frame::Command {
        id: 1,
        body: Command::ZeroPages { first: 3, count: 4 },
    };
    give(&mut connection, command).await;
    let order = commands.recv().await.unwrap();
    drop(connection);
    assert_eq!(commands.recv().await, None);
    let second = asked(unlink("b"));

    let again = client.clone();
    let resumed =
        tokio::spawn(async move { again.resume(endpoint, "test", Request::Status).await });
    let mut connection = accepted(&listener).await;
    assert!(matches!(take(&mut connection).await, Frame::Hello(_)));
    give(&mut connection, welcome).await;
    let Frame::Request {
        id: greeting,
        body: Request::Status,
        ..
    } = take(&mut connection).await
    else {
        panic!("expected the request to resume");
    };
    let answer = |id| Frame::Reply {
        id,
        body: Ok(Reply::Done),
    };
    give(&mut connection, answer(greeting)).await;
    let (reply, _orders) = resumed.await.unwrap().unwrap();
    assert_eq!(reply, Reply::Done);
    // The command came by the earlier connection.
    let late = client.answer_command(order.id, Ok(Report::Done));
    assert!(matches!(late, Err(ClientError::Lost(_))));
    let Frame::Request {
        id: same,
        answered,
        body,
    } = take(&mut connection).await
    else {
        panic!("expected the request again");
    };
    assert_eq!((same, answered, body), (id, id, unlink("a")));
    let Frame::Request { id: other, .. } = take(&mut connection).await else {
        panic!("expected the second request");
    };
    give(&mut connection, answer(other)).await;
    give(&mut connection, answer(id)).await;
    assert_eq!(first.await.unwrap().unwrap(), Reply::Done);
    assert_eq!(second.await.unwrap().unwrap(), Reply::Done);
}

#[tokio::test]
async fn a_controller_that_does_not_answer_is_late() {
    let (_connection, client, _orders) = pair(Duration::from_millis(50)).await;
    let error = client.call(Request::Status).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the controller did not answer within 50 ms"
    );
    assert!(
        lock(&client.shared).waiting.is_empty(),
        "a late call does not wait any more"
    );
}

#[tokio::test]
async fn commands_arrive_and_are_answered() {
    let (mut connection, client, mut commands) = pair(LIMIT).await;
    let body = Command::ZeroPages { first: 3, count: 4 };
    let frame = Frame::Command {
        id: 9,
        body: body.clone(),
    };
    give(&mut connection, frame).await;
    let order = commands.recv().await.unwrap();
    assert_eq!(
        order,
        ReceivedCommand {
            id: CommandId {
                connection: 0,
                id: 9
            },
            command: body
        }
    );
    client.answer_command(order.id, Ok(Report::Done)).unwrap();
    let answer = take(&mut connection).await;
    assert_eq!(
        answer,
        Frame::Carried {
            id: 9,
            body: Ok(Report::Done)
        }
    );
}

#[tokio::test]
async fn a_socket_that_is_not_there_is_named() {
    let endpoint = Endpoint::Unix("/nowhere/mind-ctl.sock".into());
    let error = Client::connect(endpoint, "test", LIMIT).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot connect to the controller at /nowhere/mind-ctl.sock"
    );
}

#[tokio::test]
async fn another_version_is_refused_by_name() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = tokio::spawn(Client::connect(at(&listener), "test", LIMIT));
    let mut connection = accepted(&listener).await;
    take(&mut connection).await;
    give(&mut connection, Frame::Welcome(Welcome { version: 99 })).await;
    let error = client.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("speaks version 99"), "{error}");
}

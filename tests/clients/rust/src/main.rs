//! The official Rust client, told by lines what to do.
//!
//! {"id": 7, "do": "send", ...} is answered by {"id": 7, "gave": ...} or {"id": 7, "refused": "text"}; ends when its
//! input ends.  The client's version 5.0.0 has producers and simple consumers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{MessageBuilder, MessageView};
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};
use serde_json::{json, Value};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::Mutex;

type Gave = Result<Value, String>;

struct Consumer {
    client: SimpleConsumer,
    topic: String,
    filter: String,
    sql: bool,
}

#[derive(Default)]
struct Driver {
    producers: Mutex<HashMap<String, Arc<Producer>>>,
    consumers: Mutex<HashMap<String, Arc<Consumer>>>,
    held: Mutex<HashMap<String, Arc<MessageView>>>,
}

fn text<'a>(asked: &'a Value, name: &str) -> &'a str {
    asked[name].as_str().unwrap_or_default()
}

fn client_option(asked: &Value) -> ClientOption {
    let mut option = ClientOption::default();
    option.set_access_url(text(asked, "endpoint"));
    option.set_enable_tls(asked["tls"] == true);
    if let (Some(key), Some(secret)) = (asked["key"].as_str(), asked["secret"].as_str()) {
        option.set_access_key(key);
        option.set_secret_key(secret);
    }
    if let Some(await_ms) = asked["await_ms"].as_u64() {
        option.set_long_polling_timeout(Duration::from_millis(await_ms));
    }
    option
}

fn builder(topic: &str, fields: &Value) -> MessageBuilder {
    let mut made = MessageBuilder::builder()
        .set_topic(topic)
        .set_body(text(fields, "body").as_bytes().to_vec());
    if let Some(tag) = fields["tag"].as_str() {
        made = made.set_tag(tag);
    }
    if let Some(keys) = fields["keys"].as_array() {
        let keys: Vec<&str> = keys.iter().filter_map(Value::as_str).collect();
        made = made.set_keys(keys);
    }
    if let Some(properties) = fields["properties"].as_object() {
        made = made.set_properties(
            properties
                .iter()
                .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_string()))
                .collect::<HashMap<String, String>>(),
        );
    }
    if let Some(group) = fields["group"].as_str() {
        made = made.set_message_group(group);
    }
    if let Some(due_ms) = fields["due_ms"].as_i64() {
        made = made.set_delivery_timestamp(due_ms / 1_000); // this client knows whole seconds
    }
    made
}

fn told(view: &MessageView, token: &str) -> Value {
    json!({
        "token": token,
        "body": String::from_utf8_lossy(view.body()),
        "id": view.message_id(),
        "topic": view.topic(),
        "tag": view.tag(),
        "keys": view.keys(),
        "properties": view.properties(),
        "due_ms": view.delivery_timestamp().map(|seconds| seconds * 1_000),
        "attempt": view.delivery_attempt(),
    })
}

/// Says of a transaction what the first word of its body says.
fn checked(by: &str, view: &MessageView) -> TransactionResolution {
    let mut line = told(view, "");
    line["by"] = json!(by);
    line["event"] = json!("checked");
    println!("{line}");
    match text(&line, "body").split(' ').next() {
        Some("COMMIT") => TransactionResolution::COMMIT,
        Some("ROLLBACK") => TransactionResolution::ROLLBACK,
        _ => TransactionResolution::UNKNOWN,
    }
}

impl Driver {
    async fn run(&self, asked: &Value) -> Gave {
        match text(asked, "do") {
            "producer" => self.producer(asked).await,
            "send" => self.send(asked).await,
            "transaction" => self.transaction(asked).await,
            "simple" => self.simple(asked).await,
            "receive" => self.receive(asked).await,
            "ack" => self.ack(asked).await,
            other => Err(format!("this client cannot {other}")),
        }
    }

    async fn producer(&self, asked: &Value) -> Gave {
        let mut option = ProducerOption::default();
        option.set_topics(vec![text(asked, "topic")]);
        let name = text(asked, "name").to_string();
        let by = name.clone();
        let made = if asked["checks"] == true {
            let checker = move |_, view: MessageView| checked(&by, &view);
            Producer::new_transaction_producer(option, client_option(asked), Box::new(checker))
        } else {
            Producer::new(option, client_option(asked))
        };
        let mut made = made.map_err(|e| e.to_string())?;
        made.start().await.map_err(|e| e.to_string())?;
        self.producers.lock().await.insert(name, Arc::new(made));
        Ok(json!(true))
    }

    async fn send(&self, asked: &Value) -> Gave {
        let producer = self.producers.lock().await[text(asked, "by")].clone();
        let mut messages = Vec::new();
        for fields in asked["messages"].as_array().into_iter().flatten() {
            let message = builder(text(asked, "topic"), fields).build();
            messages.push(message.map_err(|e| e.to_string())?);
        }
        let mut receipts = Vec::new();
        if asked["batch"] == true {
            receipts = producer.batch_send(messages).await.map_err(|e| e.to_string())?;
        } else {
            for message in messages {
                receipts.push(producer.send(message).await.map_err(|e| e.to_string())?);
            }
        }
        let gave = receipts.iter().map(|receipt| json!({"id": receipt.message_id()}));
        Ok(gave.collect())
    }

    /// A message whose transaction ends as `end` says; "": it does not.
    async fn transaction(&self, asked: &Value) -> Gave {
        let producer = self.producers.lock().await[text(asked, "by")].clone();
        let made = builder(text(asked, "topic"), &asked["message"]).enable_transaction();
        let message = made.build().map_err(|e| e.to_string())?;
        let begun = producer.send_transaction_message(message).await.map_err(|e| e.to_string())?;
        let id = begun.message_id().to_string();
        match text(asked, "end") {
            "commit" => begun.commit().await.map_err(|e| e.to_string())?,
            "rollback" => begun.rollback().await.map_err(|e| e.to_string())?,
            _ => {}
        }
        Ok(json!(id))
    }

    async fn simple(&self, asked: &Value) -> Gave {
        let mut option = SimpleConsumerOption::default();
        option.set_topics(vec![text(asked, "topic")]);
        option.set_consumer_group(text(asked, "group"));
        let mut client =
            SimpleConsumer::new(option, client_option(asked)).map_err(|e| e.to_string())?;
        client.start().await.map_err(|e| e.to_string())?;
        let made = Consumer {
            client,
            topic: text(asked, "topic").to_string(),
            filter: text(asked, "filter").to_string(),
            sql: asked["sql"] == true,
        };
        let name = text(asked, "name").to_string();
        self.consumers.lock().await.insert(name, Arc::new(made));
        Ok(json!(true))
    }

    async fn receive(&self, asked: &Value) -> Gave {
        let consumer = self.consumers.lock().await[text(asked, "by")].clone();
        let views = consumer
            .client
            .receive_with(
                &consumer.topic,
                &FilterExpression::new(
                    if consumer.sql { FilterType::Sql } else { FilterType::Tag },
                    consumer.filter.clone(),
                ),
                asked["max"].as_i64().unwrap_or(32) as i32,
                Duration::from_millis(asked["invisible_ms"].as_u64().unwrap_or(0)),
            )
            .await
            .map_err(|e| e.to_string())?;
        let mut held = self.held.lock().await;
        let mut gave = Vec::new();
        for view in views {
            let token = format!("{}/{}", view.message_id(), view.delivery_attempt());
            gave.push(told(&view, &token));
            held.insert(token, Arc::new(view));
        }
        Ok(json!(gave))
    }

    async fn ack(&self, asked: &Value) -> Gave {
        let consumer = self.consumers.lock().await[text(asked, "by")].clone();
        let view = self.held.lock().await[text(asked, "token")].clone();
        consumer.client.ack(view.as_ref()).await.map_err(|e| e.to_string())?;
        Ok(json!(true))
    }
}

#[tokio::main]
async fn main() {
    let driver = Arc::new(Driver::default());
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let asked: Value = serde_json::from_str(&line).expect("a line of JSON");
        let driver = driver.clone();
        tokio::spawn(async move {
            let answer = match driver.run(&asked).await {
                Ok(gave) => json!({"id": asked["id"], "gave": gave}),
                Err(text) => json!({"id": asked["id"], "refused": text}),
            };
            println!("{answer}"); // one lock, one line; the client logs to stderr
        });
    }
    std::process::exit(0);
}

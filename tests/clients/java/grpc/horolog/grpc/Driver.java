package horolog.grpc;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import horolog.lines.Lines;
import java.io.Closeable;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.ProducerBuilder;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/** The official 5.x client, told by lines what to do; what only newer versions can do is called by reflection. */
public final class Driver {
    private final ClientServiceProvider provider = ClientServiceProvider.loadService();
    private final Map<String, Closeable> clients = new ConcurrentHashMap<>();
    private final Map<String, MessageView> held = new ConcurrentHashMap<>();
    private final Map<String, AtomicInteger> attempts = new ConcurrentHashMap<>();
    private final Lines lines = new Lines();

    public static void main(String[] arguments) throws Exception {
        new Driver().serve();
    }

    private void serve() throws Exception {
        lines.on("producer", this::producer);
        lines.on("send", this::send);
        lines.on("transaction", this::transaction);
        lines.on("recall", this::recall);
        lines.on("simple", this::simple);
        lines.on("receive", this::receive);
        lines.on("ack", this::ack);
        lines.on("change", this::change);
        lines.on("push", this::push);
        lines.on("close", this::close);
        lines.serve();
    }

    private ClientConfiguration configuration(JsonObject asked) throws Exception {
        ClientConfigurationBuilder made =
            ClientConfiguration.newBuilder().setEndpoints(asked.get("endpoint").getAsString());
        if (!asked.get("tls").getAsBoolean()) {
            ClientConfigurationBuilder.class.getMethod("enableSsl", boolean.class).invoke(made, false);
        }
        if (asked.has("key")) {
            made.setCredentialProvider(new StaticSessionCredentialsProvider(
                asked.get("key").getAsString(), asked.get("secret").getAsString()));
        }
        return made.build();
    }

    private Object producer(JsonObject asked) throws Exception {
        String name = asked.get("name").getAsString();
        ProducerBuilder made = provider.newProducerBuilder()
            .setClientConfiguration(configuration(asked))
            .setTopics(asked.get("topic").getAsString());
        if (asked.has("checks")) {
            made.setTransactionChecker(view -> {
                Map<String, Object> fields = told(view);
                lines.tell(name, "checked", fields);
                return TransactionResolution.valueOf(fields.get("body").toString().split(" ")[0]);
            });
        }
        clients.put(name, made.build());
        return true;
    }

    /** A message whose transaction ends as `end` says; "": it does not. */
    private Object transaction(JsonObject asked) throws Exception {
        Producer producer = (Producer) clients.get(asked.get("by").getAsString());
        Transaction transaction = producer.beginTransaction();
        Message message = message(asked.get("topic").getAsString(), asked.getAsJsonObject("message"));
        String id = producer.send(message, transaction).getMessageId().toString();
        String end = asked.get("end").getAsString();
        if (end.equals("commit")) {
            transaction.commit();
        } else if (end.equals("rollback")) {
            transaction.rollback();
        }
        return id;
    }

    private Object send(JsonObject asked) throws Exception {
        Producer producer = (Producer) clients.get(asked.get("by").getAsString());
        List<CompletableFuture<SendReceipt>> sent = new ArrayList<>();
        for (JsonElement each : asked.getAsJsonArray("messages")) {
            Message message = message(asked.get("topic").getAsString(), each.getAsJsonObject());
            sent.add(asked.has("async") ? producer.sendAsync(message)
                : CompletableFuture.completedFuture(producer.send(message)));
        }
        List<Object> gave = new ArrayList<>();
        for (CompletableFuture<SendReceipt> each : sent) {
            SendReceipt receipt = each.get();
            Map<String, Object> fields = new LinkedHashMap<>();
            fields.put("id", receipt.getMessageId().toString());
            try {
                fields.put("handle", SendReceipt.class.getMethod("getRecallHandle").invoke(receipt));
            } catch (NoSuchMethodException older) {
                fields.put("handle", null);
            }
            gave.add(fields);
        }
        return gave;
    }

    private Message message(String topic, JsonObject told) {
        MessageBuilder made = provider.newMessageBuilder()
            .setTopic(topic)
            .setBody(told.get("body").getAsString().getBytes(StandardCharsets.UTF_8));
        if (told.has("tag")) {
            made.setTag(told.get("tag").getAsString());
        }
        if (told.has("keys")) {
            List<String> keys = new ArrayList<>();
            told.getAsJsonArray("keys").forEach(key -> keys.add(key.getAsString()));
            made.setKeys(keys.toArray(new String[0]));
        }
        if (told.has("properties")) {
            told.getAsJsonObject("properties").entrySet()
                .forEach(each -> made.addProperty(each.getKey(), each.getValue().getAsString()));
        }
        if (told.has("group")) {
            made.setMessageGroup(told.get("group").getAsString());
        }
        if (told.has("due_ms")) {
            made.setDeliveryTimestamp(told.get("due_ms").getAsLong());
        }
        return made.build();
    }

    private Object recall(JsonObject asked) throws Exception {
        Object receipt = Producer.class.getMethod("recallMessage", String.class, String.class).invoke(
            clients.get(asked.get("by").getAsString()),
            asked.get("topic").getAsString(), asked.get("handle").getAsString());
        Class<?> kind = Class.forName("org.apache.rocketmq.client.apis.producer.RecallReceipt");
        return kind.getMethod("getMessageId").invoke(receipt).toString();
    }

    private static Map<String, FilterExpression> subscriptions(JsonObject asked) {
        Map<String, FilterExpression> found = new HashMap<>();
        boolean sql = asked.has("sql") && asked.get("sql").getAsBoolean();
        found.put(asked.get("topic").getAsString(), new FilterExpression(asked.get("filter").getAsString(),
            sql ? FilterExpressionType.SQL92 : FilterExpressionType.TAG));
        return found;
    }

    private Object simple(JsonObject asked) throws Exception {
        clients.put(asked.get("name").getAsString(), provider.newSimpleConsumerBuilder()
            .setClientConfiguration(configuration(asked))
            .setConsumerGroup(asked.get("group").getAsString())
            .setAwaitDuration(Duration.ofMillis(asked.get("await_ms").getAsLong()))
            .setSubscriptionExpressions(subscriptions(asked))
            .build());
        return true;
    }

    private Object receive(JsonObject asked) throws Exception {
        SimpleConsumer consumer = (SimpleConsumer) clients.get(asked.get("by").getAsString());
        List<Object> gave = new ArrayList<>();
        for (MessageView view : consumer.receive(
            asked.get("max").getAsInt(), Duration.ofMillis(asked.get("invisible_ms").getAsLong()))) {
            Map<String, Object> fields = told(view);
            String token = view.getMessageId() + "/" + view.getDeliveryAttempt();
            held.put(token, view);
            fields.put("token", token);
            gave.add(fields);
        }
        return gave;
    }

    private static Map<String, Object> told(MessageView view) {
        ByteBuffer body = view.getBody();
        byte[] bytes = new byte[body.remaining()];
        body.get(bytes);
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("body", new String(bytes, StandardCharsets.UTF_8));
        fields.put("id", view.getMessageId().toString());
        fields.put("topic", view.getTopic());
        fields.put("tag", view.getTag().orElse(null));
        fields.put("keys", new ArrayList<>(view.getKeys()));
        fields.put("properties", view.getProperties());
        fields.put("due_ms", view.getDeliveryTimestamp().orElse(null));
        fields.put("attempt", view.getDeliveryAttempt());
        return fields;
    }

    private Object ack(JsonObject asked) throws Exception {
        ((SimpleConsumer) clients.get(asked.get("by").getAsString())).ack(held.get(asked.get("token").getAsString()));
        return true;
    }

    private Object change(JsonObject asked) throws Exception {
        ((SimpleConsumer) clients.get(asked.get("by").getAsString())).changeInvisibleDuration(
            held.get(asked.get("token").getAsString()), Duration.ofMillis(asked.get("invisible_ms").getAsLong()));
        return true;
    }

    /** A push consumer that fails each message whose body begins with "fail N" N times. */
    private Object push(JsonObject asked) throws Exception {
        String name = asked.get("name").getAsString();
        clients.put(name, provider.newPushConsumerBuilder()
            .setClientConfiguration(configuration(asked))
            .setConsumerGroup(asked.get("group").getAsString())
            .setSubscriptionExpressions(subscriptions(asked))
            .setMessageListener(view -> {
                Map<String, Object> fields = told(view);
                lines.tell(name, "received", fields);
                String[] words = fields.get("body").toString().split(" ");
                if (!words[0].equals("fail")) {
                    return ConsumeResult.SUCCESS;
                }
                int seen = attempts.computeIfAbsent(name + view.getMessageId(), each -> new AtomicInteger())
                    .incrementAndGet();
                return seen > Integer.parseInt(words[1]) ? ConsumeResult.SUCCESS : ConsumeResult.FAILURE;
            })
            .build());
        return true;
    }

    private Object close(JsonObject asked) throws Exception {
        clients.remove(asked.get("name").getAsString()).close();
        return true;
    }
}

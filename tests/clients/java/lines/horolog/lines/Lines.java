package horolog.lines;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonObject;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * The protocol of a driver: a line of JSON each way.
 *
 * <p>{"id": 7, "do": "send", ...} is answered by {"id": 7, "gave": ...} or {"id": 7, "refused": "Class: text"}.
 * Requests run side by side. What a client does by itself is told by {"by": "its name", "event": ...}. The program
 * ends when its input ends.
 */
public final class Lines {
    /** What a driver can do. */
    public interface Verb {
        Object run(JsonObject asked) throws Exception;
    }

    private static final Gson GSON = new GsonBuilder().disableHtmlEscaping().create();
    private final Map<String, Verb> verbs = new ConcurrentHashMap<>();
    private final PrintStream out;

    public Lines() {
        out = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        System.setOut(System.err); // libraries print
    }

    public void on(String name, Verb verb) {
        verbs.put(name, verb);
    }

    /** Tell what a client did by itself. */
    public void tell(String by, String event, Map<String, Object> fields) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("by", by);
        line.put("event", event);
        line.put("at_ms", System.currentTimeMillis());
        line.putAll(fields);
        write(line);
    }

    /** Answer requests until the input ends. */
    public void serve() throws IOException {
        ExecutorService runners = Executors.newCachedThreadPool();
        BufferedReader in = new BufferedReader(
            new InputStreamReader(new FileInputStream(FileDescriptor.in), StandardCharsets.UTF_8));
        for (String text = in.readLine(); text != null; text = in.readLine()) {
            JsonObject asked = GSON.fromJson(text, JsonObject.class);
            runners.execute(() -> answer(asked));
        }
        Runtime.getRuntime().halt(0); // some threads of the clients do not end
    }

    private void answer(JsonObject asked) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("id", asked.get("id"));
        try {
            line.put("gave", verbs.get(asked.get("do").getAsString()).run(asked));
        } catch (Throwable error) {
            Throwable cause = error;
            while ((cause instanceof InvocationTargetException || cause instanceof ExecutionException
                || cause instanceof CompletionException) && cause.getCause() != null) {
                cause = cause.getCause();
            }
            cause.printStackTrace();
            line.put("refused", cause.getClass().getSimpleName() + ": " + cause.getMessage());
        }
        write(line);
    }

    private void write(Map<String, Object> line) {
        String text = GSON.toJson(line);
        synchronized (out) {
            out.println(text);
            out.flush();
        }
    }
}

%% The guest: its preparation, its host functions, one request and the check of its result.
%% Rule: the parts of a request are timed as a user's code would run them.
-module(bench_guest).

-export([runners/1, prepare/2, load/2, pooled/1, options/2, options/3, root/3, template/2]).
-export([request/2, instantiate/2, handle/2, answer/0, cold_start/1, left_nothing/1, expected/0]).
-export([must/2, fail/2]).
-export_type([guest/0]).

-type guest() :: #{module := wasmtime:wasm_module(),
                   keep_0 := wasmtime:wasm_module(),
                   reactor := file:filename(), preinit := file:filename(),
                   artifact := file:filename(),
                   temp := file:filename(), root := file:filename(), lib := file:filename()}.

-import(bench_stats, [now_ns/0, ms/1, median/1, timed/1]).

-define(MIB, 1048576).
-define(LOADS, 21).
-define(COLD_STARTS, 5).

%% ---- runners --------------------------------------------------------------------------------

%% @doc The runners to measure. Throws when one was asked for that this version does not have.
-spec runners(thread | scheduler | all) -> [thread | scheduler].
runners(all) -> [Runner || Runner <- [thread, scheduler], available(Runner) =:= ok];
runners(Runner) ->
    case available(Runner) of
        ok -> [Runner];
        {error, #{message := Message}} -> fail("runner ~s cannot be used: ~ts", [Runner, Message])
    end.

available(Runner) ->
    Mod = must("an empty module", wasmtime:compile({wat, "(module)"})),
    case wasmtime:instantiate(Mod, #{runner => Runner}) of
        {ok, Inst} -> wasmtime:destroy(Inst);
        Error -> Error
    end.

%% ---- preparation ----------------------------------------------------------------------------

%% @doc The guest, ready to serve, and what it took: pre-initialized, compiled, mapped from a file.
-spec prepare(file:filename(), file:filename()) -> {guest(), map()}.
prepare(Dir, Temp) ->
    Paths = paths(Dir, Temp),
    #{reactor := Reactor, preinit := PreinitFile, artifact := Artifact} = Paths,
    say("pre-initializing ~ts", [Reactor]),
    {PreinitNs, Wasm} = timed(fun() -> preinit(read(Reactor), Paths) end),
    ok = file:write_file(PreinitFile, Wasm),
    say("compiling", []),
    {CompileNs, Compiled} = timed(fun() -> must(compile, wasmtime:compile(Wasm, pooled())) end),
    Bytes = must(serialize, wasmtime:serialize(Compiled)),
    ok = file:write_file(Artifact, Bytes),
    Mod = load(Paths, #{}),
    Loads = [element(1, timed(fun() -> load(Paths, #{}) end)) || _ <- lists:seq(1, ?LOADS)],
    Guest = Paths#{module => Mod, keep_0 => load(Paths, #{keep_resident => 0})},
    {Guest, #{preinit_ms => ms(PreinitNs), preinit_bytes => byte_size(Wasm),
              compile_ms => ms(CompileNs), artifact_bytes => byte_size(Bytes),
              deserialize_file_ms => ms(median(Loads))}}.

paths(Dir, Temp) ->
    In = fun(Name) -> filename:join(Temp, Name) end,
    Paths = #{reactor => filename:join(Dir, "reactor.wasm"), lib => filename:join(Dir, "lib"),
              preinit => In("preinit.wasm"), artifact => In("preinit.cwasm"), temp => Temp},
    Paths#{root => root(Paths, "request", sample())}.

%% The sample request of bench/py_reactor.
sample() ->
    Here = filename:dirname(proplists:get_value(source, module_info(compile))),
    From = filename:join([Here, "py_reactor", "root"]),
    [{Name, read(filename:join(From, Name))} || Name <- ["main.py", "context.json"]].

%% @doc A folder with these files, to be a guest's `/'.
-spec root(map(), string(), [{string(), iodata()}]) -> file:filename().
root(#{temp := Temp}, Name, Files) ->
    Root = filename:join([Temp, "roots", Name]),
    Write = fun({File, Bytes}) ->
        Path = filename:join(Root, File),
        ok = filelib:ensure_dir(Path),
        ok = file:write_file(Path, Bytes)
    end,
    lists:foreach(Write, Files),
    Root.

preinit(Reactor, Paths) ->
    must(preinit, wasmtime:preinit(Reactor, options(thread, Paths), fun initialize/1)).

initialize(Inst) ->
    {ok, []} = wasmtime:call(Inst, "_initialize", []),
    {ok, [0]} = wasmtime:call(Inst, "init", []),
    ok.

%% @doc Maps the artifact into the benchmark's pool, with these options of the pool changed.
-spec load(map(), map()) -> wasmtime:wasm_module().
load(#{artifact := Artifact}, Change) ->
    must(deserialize_file, wasmtime:deserialize_file(Artifact, pooled(Change))).

pooled() -> pooled(#{}).

%% @doc Compile options of the benchmarks' pool, with these of the pool changed.
-spec pooled(map()) -> wasmtime:compile_options().
pooled(Change) ->
    Pool = #{instances => 256, max_memory => 256 * ?MIB, keep_resident => 64 * ?MIB},
    #{allocator => pooling, pooling => maps:merge(Pool, Change)}.

%% ---- requests -------------------------------------------------------------------------------

%% @doc What an instance is given: the host's functions and two folders to read.
-spec options(thread | scheduler, map()) -> wasmtime:instance_options().
options(Runner, #{root := Root} = Guest) -> options(Runner, Guest, Root).

-spec options(thread | scheduler, map(), file:filename()) -> wasmtime:instance_options().
options(Runner, #{lib := Lib}, Root) ->
    #{runner => Runner,
      wasi => #{dirs => [{"/", Root, read}, {"/lib", Lib, read}]},
      imports => #{{<<"worker">>, <<"result">>} => fun result/2,
                   {<<"hornbeam">>, <<"call">>} => fun call/2,
                   {<<"hornbeam">>, <<"take">>} => fun take/2}}.

%% @doc What requests are made from: their options, checked and linked once.
-spec template(wasmtime:wasm_module(), wasmtime:instance_options()) -> wasmtime:template().
template(Mod, Options) -> must(prepare, wasmtime:prepare(Mod, Options)).

%% @doc One request, its result checked: nanoseconds of instantiate, handle, destroy and of all.
-spec request(wasmtime:template(), integer()) -> {integer(), integer(), integer(), integer()}.
request(Template, Number) ->
    put(number, Number),
    Start = now_ns(),
    Result = wasmtime:instantiate(Template),
    Made = now_ns(),
    Inst = must(instantiate, Result),
    Code = wasmtime:call(Inst, <<"handle">>, []),
    Handled = now_ns(),
    ok = wasmtime:destroy(Inst),
    Gone = now_ns(),
    check(Code, Number),
    {Made - Start, Handled - Made, Gone - Handled, Gone - Start}.

-spec instantiate(wasmtime:wasm_module(), wasmtime:instance_options()) -> wasmtime:instance().
instantiate(Mod, Options) -> must(instantiate, wasmtime:instantiate(Mod, Options)).

%% @doc The request with that number in a live instance, its result checked.
-spec handle(wasmtime:instance(), integer()) -> ok.
handle(Inst, Number) ->
    put(number, Number),
    check(wasmtime:call(Inst, <<"handle">>, []), Number).

check({ok, [0]}, Number) ->
    {Before, After} = expected(),
    case {answer(), iolist_to_binary([Before, integer_to_binary(Number), After])} of
        {Same, Same} -> ok;
        {Answer, Expected} -> fail("the guest answered ~ts instead of ~ts", [Answer, Expected])
    end;
check(Other, _) ->
    fail("handle answered ~tp", [Other]).

%% @doc What the sample request answers, before and after its number: it follows from the context
%% and from what the host says.
-spec expected() -> {binary(), binary()}.
expected() ->
    {<<"{\"ok\":{\"user\":\"ada\",\"names\":[\"anchor\",\"flask\",\"goblet\",\"hammer\"],"
       "\"total\":590.5,\"host\":\"lookup:{\\\"user\\\": \\\"ada\\\", \\\"count\\\": 4}#">>,
     <<"\"}}">>}.

%% @doc The last answer that a guest gave to this process; it is forgotten.
-spec answer() -> binary() | undefined.
answer() -> erase(answer).

%% ---- the host's functions -------------------------------------------------------------------

result(Inst, [At, Length]) ->
    {ok, Answer} = wasmtime:read_memory(Inst, At, Length),
    put(answer, Answer),
    {ok, []}.

%% The reply is name:payload#number.
call(Inst, [NameAt, NameLength, At, Length]) ->
    {ok, Name} = wasmtime:read_memory(Inst, NameAt, NameLength),
    {ok, Payload} = wasmtime:read_memory(Inst, At, Length),
    Reply = <<Name/binary, $:, Payload/binary, $#, (integer_to_binary(get(number)))/binary>>,
    put(reply, Reply),
    {ok, [byte_size(Reply)]}.

take(Inst, [At, Length]) ->
    Reply = erase(reply),
    Length = byte_size(Reply),
    ok = wasmtime:write_memory(Inst, At, Reply),
    {ok, [Length]}.

%% ---- without pre-initialization, and afterwards ---------------------------------------------

%% @doc Milliseconds of a request in the module as it was built: it starts Python itself.
-spec cold_start(guest()) -> float().
cold_start(#{reactor := Reactor} = Guest) ->
    Mod = must(compile, wasmtime:compile(read(Reactor), pooled())),
    Options = options(thread, Guest),
    Once = fun() ->
        Inst = instantiate(Mod, Options),
        ok = initialize(Inst),
        ok = handle(Inst, 0),
        ok = wasmtime:destroy(Inst)
    end,
    ms(median([element(1, timed(Once)) || _ <- lists:seq(1, ?COLD_STARTS)])).

%% @doc Every slot is free again and no message was left behind.
-spec left_nothing(guest()) -> ok.
left_nothing(#{module := Mod}) ->
    {messages, Messages} = process_info(self(), messages),
    case wasmtime:pool_info(Mod) of
        #{used := 0} when Messages =:= [] -> ok;
        Info -> fail("left behind: the messages ~tp; the pool: ~tp", [Messages, Info])
    end.

%% ---- helpers --------------------------------------------------------------------------------

-spec must(term(), {ok, Value} | {error, term()}) -> Value.
must(_, {ok, Value}) -> Value;
must(What, {error, #{message := Message} = Error}) ->
    fail("~tp failed: ~ts~n~tp", [What, Message, Error]).

-spec fail(io:format(), [term()]) -> no_return().
fail(Format, Args) ->
    throw({failed, unicode:characters_to_list(io_lib:format(Format, Args))}).

read(Path) ->
    case file:read_file(Path) of
        {ok, Bytes} -> Bytes;
        {error, Reason} -> fail("~ts: ~ts", [Path, file:format_error(Reason)])
    end.

say(Format, Args) ->
    io:format(standard_error, "bench: " ++ Format ++ "~n", Args).

%% What messages tell: what was wrong, by its name, and what would be right. Kinds are tested where they arise;
%% here are those mistakes whose messages once led nowhere.
-module(message_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-import(wasmtime_test, [mod/1, inst/1, inst/2, one/1]).

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

%% The error is of that kind, and each part is in its message.
tells(Class, Kind, Parts, Result) ->
    {error, #{class := C, kind := K, message := Message}} = Result,
    ?assertEqual({Class, Kind, Message}, {C, K, Message}),
    [?assertMatch({_, _, {_, _}}, {Part, Message, string:find(Message, Part) =/= nomatch andalso {found, Part}})
     || Part <- Parts],
    ?assertMatch({Message, nomatch}, {Message, binary:match(Message, <<"\n">>)}).

%% A memory that no link serves: which link is missing, and which there are.
t_missing_link(_) ->
    Needs = mod({wat, "(module (import \"lib\" \"memory\" (memory 1)))"}),
    New = fun(Links) -> wasmtime_test:instantiate(Needs, #{links => Links}) end,
    tells(link, unsupported_import, ["the module imports the memory lib.memory", "no link is named \"lib\"", "there are none"],
          New([])),
    tells(link, unsupported_import, ["memory lib.memory", "no link is named \"lib\"", "lbi, other"],
          New([{"lbi", mod(memory)}, {"other", mod(add)}])),
    tells(link, unsupported_import, ["the link \"a\" imports the memory lib.memory"],
          wasmtime_test:instantiate(mod(add), #{links => [{"a", Needs}]})),
    tells(link, unsupported_import, ["the table t.t"],
          wasmtime_test:instantiate(mod({wat, "(module (import \"t\" \"t\" (table 1 funcref)))"}))).

%% A typed function that returns no list where it must, and what it returned.
t_typed_result(_) ->
    Returns = fun(Result) ->
        Fun = wasmtime:import_fun({[i32], [i32]}, fun(_) -> Result end),
        Inst = inst(host, one(Fun)),
        Answer = wasmtime:call(Inst, "one", [1]),
        ok = wasmtime:destroy(Inst),
        Answer
    end,
    tells(host, host_error, ["env.one", "must return the list of its results", "{ok,5}"], Returns({ok, 5})),
    tells(host, host_error, ["env.one", "must return the list of its results", "5"], Returns(5)),
    tells(host, host_error, ["env.one", "returned 0 results instead of 1"], Returns([])).

%% What import_fun answered, put among the imports as it is.
t_import_that_is_none(_) ->
    Inst = inst(add),
    [tells(instantiate, badarg, ["{\"env\",\"one\"}", "must be a function of two arguments, not {" ++ Tag],
           wasmtime_test:instantiate(mod(host), #{{"env", "one"} => wasmtime:import_fun(Inst, Name)}))
     || {Tag, Name} <- [{"ok,", "add"}, {"error,", "sub"}]],
    ok = wasmtime:destroy(Inst).

%% Host calls that got no answer: whose.
t_unanswered(_) ->
    Slow = inst(host, (one(fun(_, _) -> timer:sleep(50), {ok, [1]} end))#{host_timeout => 1}),
    tells(host, host_timeout, ["env.one", "1 ms"], wasmtime:call(Slow, "one", [1])),
    Gone = spawn(fun() -> ok end),
    wasmtime_test:wait_until(fun() -> not is_process_alive(Gone) end),
    Alone = inst(host, (one(fun(_, _) -> {ok, [1]} end))#{host => Gone}),
    tells(host, host_down, ["env.one"], wasmtime:call(Alone, "one", [1])),
    Self = self(),
    Host = spawn(fun() -> receive {wasmtime_host_call, _, _, _, _} -> Self ! asked end, receive stop -> ok end end),
    Left = inst(host, (one(fun(_, _) -> {ok, [1]} end))#{host => Host}),
    {Pid, _} = wasmtime_test:caller(fun() -> wasmtime:call(Left, "one", [1]) end),
    receive asked -> Host ! stop end,
    receive {Pid, Result} -> tells(host, host_down, ["env.one"], Result) end,
    [ok = wasmtime:destroy(Inst) || Inst <- [Slow, Alone, Left]].

%% What is no module: an artifact, a component as text or bytes, anything else.
t_no_module(_) ->
    {ok, Artifact} = wasmtime:serialize(mod(add)),
    {ok, Sealed} = wasmtime:serialize(mod(add), #{key => <<"key">>}),
    Component = <<0, "asm", 16#0d, 0, 1, 0>>,
    [begin
         [tells(compile, malformed, ["deserialize"], Do(Bin)) || Bin <- [Artifact, Sealed]],
         tells(compile, malformed, ["does not begin with"], Do(<<"GIF89a">>)),
         [tells(compile, unsupported, ["components are not supported"], Do(Source))
          || Source <- [Component, {wat, "(component)"}, {wat, <<" (; one ;) ;; two\n ( component $c (core module))">>}]],
         ?assertMatch({error, #{class := compile, kind := malformed}}, Do({wat, "component"}))
     end || Do <- [fun wasmtime:compile/1, fun wasmtime:validate/1]],
    Preinit = fun(Bin) -> wasmtime:preinit(Bin, #{}, []) end,
    tells(preinit, malformed, ["deserialize"], Preinit(Artifact)),
    tells(preinit, malformed, ["does not begin with"], Preinit(<<"GIF89a">>)),
    tells(preinit, unsupported, ["component"], Preinit(Component)),
    tells(compile, unsupported, ["components are not supported"], wasmtime:wat2wasm("(component)")),
    ?assertMatch({error, #{kind := malformed}}, wasmtime:wat2wasm("(module (component))")).

%% A message without bytes counts as one.
t_empty_message(_) ->
    Inst = inst(add, #{inbox_limit => 1}),
    ok = wasmtime:send(Inst, <<"x">>),
    tells(stream, inbox_full, ["an empty message, which counts as one byte"], wasmtime:send(Inst, <<>>)),
    None = inst(add, #{inbox_limit => 0}),
    tells(stream, inbox_full, ["an empty message, which counts as one byte"], wasmtime:send(None, <<>>)),
    [ok = wasmtime:destroy(I) || I <- [Inst, None]].

%% A type that is looked for in a function that is not there, or in one that is.
t_type_of_no_function(_) ->
    Inst = inst(add),
    New = fun(Where) -> wasmtime:array_new(Inst, Where, []) end,
    [tells(ref, badarg, ["there is no exported function \"nope\""], New({Where, "nope", 1})) || Where <- [param, result]],
    tells(ref, badarg, ["there is no imported function \"a\".\"b\""], New({param, {"a", "b"}, 1})),
    tells(ref, badarg, ["there is no parameter 3 of the exported function \"add\""], New({param, "add", 3})),
    ok = wasmtime:destroy(Inst).

%% A cache whose directory is a file.
t_cache_in_a_file(Config) ->
    File = wasmtime_test:write(wasmtime_test:temp(Config, "cache"), "file", <<>>),
    Self = self(),
    {ok, _} = wasmtime:cached(wasmtime_test:source(add), File, #{report => fun(Event) -> Self ! Event end}),
    receive {not_stored, Error} -> tells(compile, file, [File, "it is not a directory"], {error, Error}) end.

%% Options of servers and pools, which may be pairs.
t_pairs(_) ->
    [[tells(Class, badarg, ["module is missing"], Module:start_link(None)) || None <- [[], #{}]]
     ++ [tells(Class, badarg, ["a map or a list of pairs"], Module:start_link(Bad)) || Bad <- [[a], x, [{a, b} | c]]]
     || {Class, Module} <- [{pool, wasmtime_pool}, {instantiate, wasmtime_server}]].

%% A shell says which argument an exception is about, and why it is none.
t_exceptions(_) ->
    {ok, Template} = wasmtime_test:prepare(mod(add), #{}),
    Fun = fun(_) -> 1 end,
    [begin
         Stack = try Do(), none catch error:badarg:Trace -> Trace end,
         Text = unicode:characters_to_binary(erl_error:format_exception(error, badarg, Stack)),
         ?assertMatch({Text, {_, _}}, {Text, binary:match(Text, <<"argument 1: ", Part/binary>>)})
     end || {Part, Dos} <- [
         {<<"neither the bytes of a module nor {wat, Text}">>,
          [fun() -> wasmtime:compile("(module)") end, fun() -> wasmtime:compile({file, "a.wasm"}) end,
           fun() -> wasmtime:validate(1) end, fun() -> wasmtime:preinit(1, #{}, []) end,
           fun() -> wasmtime:wat2wasm(1) end]},
         {<<"neither the bytes of a module, nor">>, [fun() -> wasmtime:cached(Fun, "cache", #{}) end]},
         {<<"not the bytes of an artifact">>, [fun() -> wasmtime:deserialize("file") end]},
         {<<"not a path">>, [fun() -> wasmtime:deserialize_file(1) end]},
         {<<"not a module">>,
          [fun() -> wasmtime:serialize(1) end, fun() -> wasmtime:imports(1) end, fun() -> wasmtime:exports(1) end,
           fun() -> wasmtime:module_options(1) end, fun() -> wasmtime:module_kind(1) end,
           fun() -> wasmtime:pool_info(1) end, fun() -> wasmtime:instantiate(1) end,
           fun() -> wasmtime:instantiate({ok, mod(add)}) end, fun() -> wasmtime:prepare(1, #{}) end]},
         {<<"a template">>,
          [fun() -> wasmtime:instantiate(Template, #{}) end, fun() -> wasmtime:prepare(Template, #{}) end]},
         {<<"neither a type {Params, Results} nor an instance">>, [fun() -> wasmtime:import_fun(i32, Fun) end]},
         {<<"not a reference">>,
          [fun() -> wasmtime:externref_data(null) end, fun() -> wasmtime:ref_info(null) end,
           fun() -> wasmtime:array_len(null) end, fun() -> wasmtime:array_get(null, 0) end,
           fun() -> wasmtime:array_set(null, -1, 0) end, fun() -> wasmtime:struct_get(1, 0) end,
           fun() -> wasmtime:struct_set(1, a, 0) end]},
         {<<"not an instance">>,
          [fun() -> apply(wasmtime, Name, [mod(add) | Args]) end
           || {Name, Args} <- [{call, ["f", []]}, {call, ["f", [], #{}]}, {call_ref, [1, []]},
                               {call_ref, [1, [], #{}]}, {call_async, ["f", []]}, {await, [1]}, {run, []},
                               {interrupt, []}, {destroy, []}, {ref, []}, {info, []}, {handle_host_call, [1]},
                               {read_memory, [0, 1]}, {write_memory, [0, <<>>]}, {memory_size, []},
                               {read_output, []}, {fuel_remaining, []}, {global_get, ["g"]},
                               {global_set, ["g", 1]}, {table_size, ["t"]}, {funcref, ["f"]}, {externref, [1]},
                               {gc, []}, {struct_new, [1, []]}, {array_new, [1, []]}, {send, [<<>>]},
                               {close, []}]]}],
         Do <- Dos].

%% Secrets among the arguments stay out of what the exception shows.
t_exceptions_hide_keys(_) ->
    Key = <<"the secret">>,
    [begin
         Stack = try Do(), none catch error:badarg:Trace -> Trace end,
         ?assertEqual(nomatch, binary:match(term_to_binary(Stack), Key))
     end || Do <- [fun() -> wasmtime:serialize(1, #{key => Key}) end,
                   fun() -> wasmtime:deserialize(1, #{key => Key}) end,
                   fun() -> wasmtime:deserialize_file(1, #{key => Key}) end,
                   fun() -> wasmtime:cached(1, "cache", #{key => Key}) end]].

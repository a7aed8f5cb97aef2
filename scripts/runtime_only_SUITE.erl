%% What a build without a compiler says of itself, refuses, and loads. scripts/test-runtime-only.sh runs
%% it, with artifacts that the full build made of the same modules.
-module(runtime_only_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").

all() -> wasmtime_test:cases(?MODULE).

suite() -> wasmtime_test:suite().

%% Compile options whose artifacts are tried: what the check of an artifact compares.
options() ->
    [#{}, #{fuel => true}, #{opt_level => none}, #{opt_level => speed_and_size},
     #{proposals => #{simd => false}}, #{proposals => #{threads => true, gc => true, exceptions => true}},
     wasmtime_test:pool(#{})].

%% The full build's part: it leaves the artifacts.
prepare() ->
    {Source, Opts, Dir} = cache(),
    {ok, _} = wasmtime:cached(Source, Dir, Opts),
    [_ = wasmtime_test:artifact(wasmtime_test:source(memory), Given) || Given <- options()].

%% It says so itself.
t_features(_) ->
    ?assertMatch(#{compiler := false, wat := false, wasi := true}, wasmtime:features()).

%% What needs a compiler is `unavailable', whatever it is given; wrong options are named all the same.
t_unavailable(_) ->
    Wasm = <<0, "asm", 1:32/little>>,
    {wat, Text} = Wat = wasmtime_test:source(memory),
    [?assertMatch({{error, #{class := Class, kind := unavailable, message := <<_, _/binary>>}}, _}, {Do(), Class})
     || {Class, Do} <- [{compile, fun() -> wasmtime:compile(Wasm) end},
                        {compile, fun() -> wasmtime:compile(<<"nonsense">>, #{fuel => true}) end},
                        {compile, fun() -> wasmtime:compile(Wat) end},
                        {compile, fun() -> wasmtime:validate(Wasm) end},
                        {compile, fun() -> wasmtime:validate(Wat) end},
                        {compile, fun() -> wasmtime:wat2wasm(Text) end},
                        {compile, fun() -> wasmtime:serialize(wasmtime_test:mod(memory)) end},
                        {preinit, fun() -> wasmtime:preinit(Wasm, #{}, []) end},
                        {preinit, fun() -> wasmtime:preinit(Wasm, #{}, fun(_) -> ok end) end}]],
    ?assertMatch({error, #{kind := badarg, key := fuel}}, wasmtime:compile(Wasm, #{fuel => 1})),
    ?assertMatch({error, #{kind := badarg, key := x}}, wasmtime:preinit(Wasm, #{x => 1}, [])),
    ?assertError(badarg, wasmtime:compile(1)).

%% A cache gives what the full build left there. What is missing or damaged is named with its reason, and no
%% source function is called for it.
t_cached(Config) ->
    {Source, Opts, Filled} = cache(),
    {ok, Mod} = wasmtime:cached(Source, Filled, Opts),
    Inst = wasmtime_test:inst(Mod, #{}),
    ?assertEqual({ok, [1]}, wasmtime:call(Inst, "count", [])),
    ok = wasmtime:destroy(Inst),
    Dir = wasmtime_test:temp(Config, "cache"),
    ok = file:change_mode(Dir, 8#700),
    Unavailable = fun(From, Reason) ->
        {error, #{class := compile, kind := unavailable, message := Message}} = wasmtime:cached(From, Dir, Opts),
        [?assertMatch({Part, Message, 1}, {Part, Message, length(binary:matches(Message, Part))})
         || Part <- [Reason, list_to_binary(Dir)]]
    end,
    Unavailable(Source, <<".cwasm">>),
    Unavailable(fun() -> error(called) end, <<"No such file">>),
    [Entry] = filelib:wildcard("*.cwasm", Filled),
    ok = file:write_file(filename:join(Dir, Entry), <<"damaged">>),
    Unavailable(Source, <<"artifact">>),
    {error, #{message := NoDir}} = wasmtime:cached(Source, filename:join(Dir, Entry), Opts),
    [?assertMatch({Part, NoDir, 1}, {Part, NoDir, length(binary:matches(NoDir, list_to_binary(Part)))})
     || Part <- [Dir, "not a directory"]].

cache() ->
    {wasmtime_test:source(memory), #{version => 1}, filename:join(os:getenv("WASMTIME_ARTIFACTS"), "cache")}.

%% Artifacts of the full build load from bytes and from their file, and run; damage and other options are
%% told as there.
t_artifacts(Config) ->
    Dir = wasmtime_test:temp(Config, "a"),
    [begin
         Bin = wasmtime_test:artifact(wasmtime_test:source(memory), Opts),
         File = wasmtime_test:write(Dir, "m.cwasm", Bin),
         Loads = [wasmtime:deserialize(Bin, Opts), wasmtime:deserialize_file(File, Opts),
                  wasmtime:deserialize_file(File, Opts#{check => full})],
         [begin
              Inst = wasmtime_test:inst(Mod, #{}),
              ?assertEqual({ok, [1]}, wasmtime:call(Inst, "count", [])),
              ?assertEqual({ok, <<"image">>}, wasmtime:read_memory(Inst, 16, 5)),
              ok = wasmtime:destroy(Inst)
          end || {ok, Mod} <- Loads],
         ?assertEqual(3, length([ok || {ok, _} <- Loads])),
         Other = Opts#{fuel => not maps:get(fuel, Opts, false)},
         ?assertMatch({error, #{kind := incompatible, key := fuel}}, wasmtime:deserialize(Bin, Other)),
         Cut = binary:part(Bin, 0, byte_size(Bin) - 1),
         ?assertMatch({error, #{kind := corrupted}}, wasmtime:deserialize(Cut, Opts))
     end || Opts <- options()].

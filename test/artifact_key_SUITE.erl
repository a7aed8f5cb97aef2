%% Sealed artifacts: with a key nothing is loaded that was not sealed with it, and what is loaded is
%% what was checked.
-module(artifact_key_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(wasmtime_test, [mod/1, mod/2, temp/2, write/3]).

-define(KEY, <<"a key of this suite, and no other">>).
-define(UNTRUSTED, ?WASMTIME_ERROR(compile, untrusted)).

%% Bytes of a seal, of its tag, and of an artifact's trailer.
-define(SEAL, 84).
-define(TAG, 32).
-define(TRAILER, 44).

all() -> wasmtime_test:cases(?MODULE).

suite() -> wasmtime_test:suite().

sealed() -> sealed(memory, ?KEY).

sealed(Name, Key) ->
    {ok, Bin} = wasmtime:serialize(mod(Name), #{key => Key}),
    Bin.

plain(Name) ->
    {ok, Bin} = wasmtime:serialize(mod(Name)),
    Bin.

works(Mod) ->
    {ok, Inst} = wasmtime:instantiate(Mod),
    ?assertEqual({ok, <<"image">>}, wasmtime:read_memory(Inst, 16, 5)),
    ?assertEqual({ok, [1]}, wasmtime:call(Inst, <<"count">>, [])),
    wasmtime:destroy(Inst).

%% With its key, and without one, a sealed artifact loads in every way, and works.
t_round_trip(Config) ->
    Bin = sealed(),
    Path = write(temp(Config, "r"), "memory.cwasm", Bin),
    [begin
         {ok, FromBin} = wasmtime:deserialize(Bin, maps:remove(check, Opts)),
         works(FromBin),
         {ok, FromFile} = wasmtime:deserialize_file(Path, Opts),
         works(FromFile)
     end || Key <- [#{}, #{key => ?KEY}], Check <- [#{}, #{check => metadata}, #{check => full}],
            Opts <- [maps:merge(Key, Check)]],
    {ok, Default} = wasmtime:deserialize_file(Path),
    works(Default),
    {ok, Pooled} = wasmtime:deserialize_file(Path, (wasmtime_test:pool(#{}))#{key => ?KEY}),
    works(Pooled).

%% The seal only adds: in front of it is the plain artifact, and its last 32 bytes are what any
%% program computes as HMAC-SHA256 of the rest. Keys of every length will do.
t_tag_is_hmac(_) ->
    Plain = plain(memory),
    [begin
         Bin = sealed(memory, Key),
         {Rest, Tag} = split(Bin, byte_size(Bin) - ?TAG),
         ?assertEqual(crypto:mac(hmac, sha256, Key, Rest), Tag),
         ?assertEqual({Plain, ?SEAL}, {binary:part(Bin, 0, byte_size(Plain)),
                                       byte_size(Bin) - byte_size(Plain)}),
         ?assertMatch({ok, _}, wasmtime:deserialize(Bin, #{key => Key}))
     end || Key <- [<<0>>, <<"x">>, rand:bytes(32), rand:bytes(63), rand:bytes(64), rand:bytes(65),
                    rand:bytes(1000)]].

%% What was serialized again is sealed only when it is asked for.
t_again(_) ->
    {ok, Mod} = wasmtime:deserialize(sealed(), #{key => ?KEY}),
    {ok, Plain} = wasmtime:serialize(Mod),
    ?assertMatch(?UNTRUSTED, wasmtime:deserialize(Plain, #{key => ?KEY})),
    {ok, Again} = wasmtime:serialize(Mod, #{key => ?KEY}),
    ?assertMatch({ok, _}, wasmtime:deserialize(Again, #{key => ?KEY})).

%% With a key, what has no seal is refused, be it an artifact, something else, or nothing.
t_unsealed(Config) ->
    Dir = temp(Config, "u"),
    [untrusted(Dir, Bin) || Bin <- [plain(memory), <<>>, <<"x">>, binary:copy(<<0>>, 100_000),
                                    wasmtime_test:wasm(memory), rand:bytes(?SEAL),
                                    <<(rand:bytes(?SEAL - ?TAG - 8))/binary, "WASMSEAL",
                                      (rand:bytes(?TAG))/binary>>]].

%% Another key opens nothing, however near it is; nor does the key of another artifact.
t_wrong_key(Config) ->
    Bin = sealed(),
    Path = write(temp(Config, "w"), "memory.cwasm", Bin),
    {Short, _} = split(?KEY, byte_size(?KEY) - 1),
    [begin
         ?assertMatch(?UNTRUSTED, wasmtime:deserialize(Bin, #{key => Key})),
         ?assertMatch(?UNTRUSTED, wasmtime:deserialize_file(Path, #{key => Key}))
     end || Key <- [Short, <<?KEY/binary, "!">>, flip(?KEY, 0, 0), <<0>>, rand:bytes(100)]].

%% Every byte of the footer, the trailer and the seal matters.
t_end(Config) ->
    Bin = sealed(),
    Size = byte_size(Bin),
    Dir = temp(Config, "e"),
    Bits = wasmtime_test:rounds([5], [0, 5, 7], lists:seq(0, 7)),
    [untrusted(Dir, flip(Bin, At, Bit)) || At <- lists:seq(footer(Bin), Size - 1), Bit <- Bits].

%% So does every other byte, as samples show.
t_flipped(Config) ->
    Bin = sealed(),
    Dir = temp(Config, "f"),
    [untrusted(Dir, flip(Bin, rand:uniform(byte_size(Bin)) - 1, rand:uniform(8) - 1))
     || _ <- lists:seq(1, wasmtime_test:rounds(200, 2000, 20_000))].

%% Cut at every boundary of the structure, beside each, and elsewhere.
t_truncated(Config) ->
    Bin = sealed(),
    Size = byte_size(Bin),
    Artifact = Size - ?SEAL,
    Boundaries = [0, 4096, footer(Bin), Artifact - ?TRAILER, Artifact, Artifact + 8,
                  Artifact + 8 + ?TAG, Size - ?TAG - 8, Size - ?TAG, Size],
    Near = [B + D || B <- Boundaries, D <- [-1, 0, 1]],
    Lengths = Near ++ lists:seq(0, Size, Size div 50),
    Dir = temp(Config, "t"),
    [untrusted(Dir, binary:part(Bin, 0, Length))
     || Length <- lists:usort(Lengths), Length >= 0, Length < Size],
    untrusted(Dir, <<Bin/binary, 0>>).

%% Nothing of one sealed artifact goes with another one, and a seal cannot be put on twice.
t_swapped(Config) ->
    {A, SealA} = split(sealed(memory, ?KEY), -?SEAL),
    {B, SealB} = split(sealed(add, ?KEY), -?SEAL),
    {HeadA, TagA} = split(SealA, -?TAG),
    {HeadB, TagB} = split(SealB, -?TAG),
    Dir = temp(Config, "s"),
    [untrusted(Dir, iolist_to_binary(Parts))
     || Parts <- [[A, SealB], [B, SealA], [A, HeadA, TagB], [A, HeadB, TagA], [A, HeadB, TagB],
                  [A, SealA, SealA], [A, A, SealA], [SealA, A, SealA], [B, SealB, A, SealA]]].

%% `key' checks everything: `check => metadata' does not make less of it, not even for a damaged
%% artifact that was sealed.
t_key_implies_full(Config) ->
    {Plain, _} = split(sealed(), -?SEAL),
    Dir = temp(Config, "full"),
    Path = write(Dir, "flipped", flip(sealed(), footer(sealed()) - 100, 0)),
    ?assertMatch({ok, _}, wasmtime:deserialize_file(Path, #{check => metadata})),
    ?assertMatch(?UNTRUSTED, wasmtime:deserialize_file(Path, #{check => metadata, key => ?KEY})),
    Sealed = write(Dir, "sealed", seal(flip(Plain, footer(sealed()) - 100, 0))),
    ?assertMatch({ok, _}, wasmtime:deserialize_file(Sealed, #{check => metadata})),
    ?assertMatch(?WASMTIME_ERROR(compile, corrupted),
                 wasmtime:deserialize_file(Sealed, #{check => metadata, key => ?KEY})).

%% A seal by hand, as docs/artifacts.md describes it.
seal(Artifact) ->
    Len = <<(byte_size(Artifact)):64/little>>,
    Told = crypto:mac(hmac, sha256, ?KEY, [Len, " wasmtime artifact length"]),
    Sealed = [Artifact, Len, Told, <<1:32/little>>, "WASMSEAL"],
    iolist_to_binary([Sealed, crypto:mac(hmac, sha256, ?KEY, Sealed)]).

%% Behind a good seal, what is wrong is told as always.
t_sealed_garbage(_) ->
    ?assertMatch(?WASMTIME_ERROR(compile, corrupted),
                 wasmtime:deserialize(seal(<<"no artifact">>), #{key => ?KEY})),
    ?assertMatch(?WASMTIME_ERROR(compile, corrupted),
                 wasmtime:deserialize(seal(<<>>), #{key => ?KEY})),
    ?assertMatch(?WASMTIME_ERROR(compile, corrupted),
                 wasmtime:deserialize(seal(sealed()), #{key => ?KEY})),
    ?assertMatch(?WASMTIME_ERROR(compile, incompatible),
                 wasmtime:deserialize(sealed(), #{key => ?KEY, fuel => true})).

%% Without a key a seal is only looked at to be left out: a damaged one is no harm, or an error.
t_damaged_seal_without_key(_) ->
    Bin = sealed(),
    Size = byte_size(Bin),
    [case wasmtime:deserialize(flip(Bin, At, 3)) of
         {ok, _} -> ok;
         {error, #{class := compile, kind := Kind}} ->
             ?assert(lists:member(Kind, [corrupted, incompatible]))
     end || At <- lists:seq(Size - ?SEAL, Size - 1)],
    {Artifact, Seal} = split(Bin, -?SEAL),
    ?assertMatch(?WASMTIME_ERROR(compile, corrupted), wasmtime:deserialize(Seal)),
    ?assertMatch(?WASMTIME_ERROR(compile, corrupted),
                 wasmtime:deserialize(<<Artifact/binary, 0, Seal/binary>>)),
    ?assertMatch(?WASMTIME_ERROR(compile, corrupted),
                 wasmtime:deserialize(<<Bin/binary, Seal/binary>>)).

%% A file that somebody made huge is refused before it is read.
t_huge(Config) ->
    Path = write(temp(Config, "h"), "memory.cwasm", sealed()),
    {_, Seal} = split(sealed(), -?SEAL),
    {ok, File} = file:open(Path, [read, write, raw, binary]),
    ok = file:pwrite(File, 1 bsl 40, Seal),
    ok = file:close(File),
    ?assertMatch(?UNTRUSTED, wasmtime:deserialize_file(Path, #{key => ?KEY})),
    ok = file:delete(Path).

%% Once it is loaded, nothing that happens to its file reaches a module: neither pages that no
%% instance has touched so far nor code.
t_changed_after_the_check(Config) ->
    Bin = sealed(),
    Path = write(temp(Config, "c"), "memory.cwasm", Bin),
    {ok, Mod} = wasmtime:deserialize_file(Path, #{key => ?KEY}),
    {ok, File} = file:open(Path, [read, write, raw, binary]),
    ok = file:pwrite(File, 0, binary:copy(<<16#CC>>, byte_size(Bin))),
    works(Mod),
    {ok, 0} = file:position(File, 0),
    ok = file:truncate(File),
    works(Mod),
    ok = file:close(File).

%% A writer that changes the file in place all the time never wins: what loads is what was sealed.
t_changed_during_the_check(Config) ->
    Good = sealed(),
    {Forged, _} = split(iolist_to_binary([plain(add), Good]), byte_size(Good)),
    Path = write(temp(Config, "d"), "memory.cwasm", Good),
    {Writer, Monitor} = spawn_monitor(fun() ->
        {ok, File} = file:open(Path, [read, write, raw, binary]),
        overwrite(File, [Good, Forged])
    end),
    Results = [loaded(Path) || _ <- lists:seq(1, wasmtime_test:rounds(300, 3000, 30_000))],
    exit(Writer, kill),
    receive {'DOWN', Monitor, process, Writer, killed} -> ok end,
    ?assertEqual([], lists:usort(Results) -- [sealed, untrusted]),
    ?assert(lists:member(untrusted, Results)).

overwrite(File, [First, Second]) ->
    ok = file:pwrite(File, 0, First),
    overwrite(File, [Second, First]).

loaded(Path) ->
    case wasmtime:deserialize_file(Path, #{key => ?KEY}) of
        {ok, Mod} -> works(Mod), sealed;
        {error, #{class := compile, kind := Kind}} -> Kind
    end.

%% A file replaced by a rename is the new one for who loads it then.
t_replaced(Config) ->
    Dir = temp(Config, "p"),
    Path = write(Dir, "m.cwasm", sealed()),
    {ok, Mod} = wasmtime:deserialize_file(Path, #{key => ?KEY}),
    _ = write(Dir, "m.cwasm", plain(add)),
    ?assertMatch(?UNTRUSTED, wasmtime:deserialize_file(Path, #{key => ?KEY})),
    _ = write(Dir, "m.cwasm", sealed(add, ?KEY)),
    {ok, New} = wasmtime:deserialize_file(Path, #{key => ?KEY}),
    ?assertEqual([{<<"add">>, func}], wasmtime:exports(New)),
    works(Mod).

%% A key that is none is refused by its name, and not repeated.
t_badarg(Config) ->
    Path = write(temp(Config, "b"), "memory.cwasm", sealed()),
    [begin
         {error, #{class := compile, kind := badarg, key := key, message := Message}} = Do(#{key => Key}),
         ?assertEqual(nomatch, binary:match(Message, <<"secret">>))
     end || Key <- [<<>>, "secret", secret, undefined, 1, [<<"secret">>], {key, <<"secret">>},
                    <<1:7>>, fun() -> <<"secret">> end],
            Do <- [fun(Opts) -> wasmtime:serialize(mod(memory), Opts) end,
                   fun(Opts) -> wasmtime:deserialize(sealed(), Opts) end,
                   fun(Opts) -> wasmtime:deserialize_file(Path, Opts) end]],
    ?assertMatch({error, #{kind := badarg, key := keys}},
                 wasmtime:serialize(mod(memory), #{keys => ?KEY})),
    ?assertMatch({error, #{kind := badarg}}, wasmtime:serialize(mod(memory), [{key, ?KEY}])),
    ?assertMatch({error, #{kind := badarg, key := check}},
                 wasmtime:deserialize(sealed(), #{key => ?KEY, check => metadata})),
    ?assertMatch({error, #{kind := badarg, key := fuel}},
                 wasmtime:deserialize_file(Path, #{key => ?KEY, fuel => maybe_so})).

%% What is no module raises, without the key in the stack trace.
t_key_is_not_in_traces(_) ->
    [try wasmtime:serialize(NoModule, #{key => ?KEY}) of
         Result -> error({not_raised, Result})
     catch
         error:badarg:Stack ->
             ?assertEqual(nomatch, binary:match(term_to_binary(Stack), ?KEY))
     end || NoModule <- [make_ref(), module, <<"x">>]].

%% Nor where the library is not there: that raises `undef'.
t_key_is_not_in_traces_without_the_library(_) ->
    ?assertEqual(ok, fault_test:start_node({?MODULE, without_library, []}, "")).

without_library() ->
    ok = logger:set_primary_config(level, none),
    Mod = mod(memory),
    true = code:delete(wasmtime_nif),
    [try Do(#{key => ?KEY}) of
         Result -> error({not_raised, Result})
     catch
         error:undef:Stack ->
             ?assertMatch([{wasmtime_nif, _, _, _} | _], Stack),
             ?assertEqual(nomatch, binary:match(term_to_binary(Stack), ?KEY))
     end || Do <- [fun(Opts) -> wasmtime:serialize(Mod, Opts) end,
                   fun(Opts) -> wasmtime:deserialize(<<"x">>, Opts) end,
                   fun(Opts) -> wasmtime:deserialize_file("x", Opts) end,
                   fun(Opts) -> wasmtime:cached(<<"x">>, "x", Opts) end]],
    ok.

%% Messages that repeat what was given leave a key out, wherever it stands in it.
t_key_is_not_in_messages(_) ->
    Wrong = {file, 'x.cwasm', #{key => ?KEY}},
    Says = fun({error, #{kind := badarg, message := Message}}) ->
        ?assertMatch({_, _}, binary:match(Message, <<"x.cwasm">>)),
        ?assertEqual(nomatch, binary:match(Message, <<"a key of this suite">>))
    end,
    [Says(Said) || Given <- [Wrong, [Wrong], {Wrong, Wrong}, {file, 'x.cwasm', [{key, ?KEY}]}],
                   Said <- [wasmtime_pool:start_link(#{module => Given}),
                            wasmtime_server:start_link(#{module => Given}),
                            wasmtime_pool:start_link(#{module => mod(add), name => Given}),
                            wasmtime_pool:start_link(#{module => mod(add), size => Given}),
                            wasmtime:instantiate(mod(add), #{links => [{"a", Given}]}),
                            wasmtime:instantiate(mod(add), #{links => [Given]})]].

%% What a server logs when it ends shows no key, and neither does its status; a pool has none any more.
t_key_is_not_in_logs(Config) ->
    process_flag(trap_exit, true),
    Path = write(temp(Config, "log"), "service.cwasm", sealed(service, ?KEY)),
    Opts = #{module => {file, Path, #{key => ?KEY}},
             instance => #{{"env", "ask"} => fun(_, [X]) -> {ok, [X]} end}},
    %% While it starts, the server has the key still.
    Self = self(),
    Init = fun(_) -> Self ! {init, self()}, receive go -> ok end end,
    Starter = spawn(fun() -> wasmtime_server:start_link(Opts#{name => starting, init => Init}), receive stop -> ok end end),
    Maker = receive {init, Pid} -> Pid end,
    ?assertEqual(nomatch, binary:match(term_to_binary(sys:get_status(starting)), ?KEY)),
    Maker ! go,
    ok = wasmtime_server:stop(starting),
    exit(Starter, kill),
    ok = logger:add_handler(?MODULE, ?MODULE, #{config => self()}),
    {ok, Server} = wasmtime_server:start_link(Opts#{on_trap => stop}),
    {ok, Pool} = wasmtime_pool:start_link(Opts),
    [?assertEqual(nomatch, binary:match(term_to_binary(sys:get_status(Process)), ?KEY)) || Process <- [Server, Pool]],
    ?assertMatch(?WASMTIME_TRAP(unreachable), wasmtime_server:call(Server, "trap", [])),
    receive {'EXIT', Server, {wasmtime_trap, _}} -> ok end,
    exit(Pool, oops),
    receive {'EXIT', Pool, oops} -> ok end,
    Logged = [receive {logged, Process, Event} -> Event end || Process <- [Server, Server, Pool, Pool]],
    ok = logger:remove_handler(?MODULE),
    [?assertEqual(nomatch, binary:match(Event, ?KEY)) || Event <- Logged].

%% As a handler of logs: tells the process of the case what was said, and by whom.
log(#{meta := #{pid := Pid}} = Event, #{config := To}) -> To ! {logged, Pid, term_to_binary(Event)};
log(_, _) -> ok.

%% The key of a server's or pool's file may be a function, which what is logged of options does not call; one
%% that has no key to give is refused.
t_key_of_a_function(Config) ->
    process_flag(trap_exit, true),
    Path = write(temp(Config, "fun"), "memory.cwasm", sealed()),
    Starts = [fun wasmtime_server:start_link/1, fun wasmtime_pool:start_link/1],
    [begin
         {ok, Pid} = Start(#{module => {file, Path, #{key => fun() -> ?KEY end}}}),
         ok = gen_server:stop(Pid),
         ?assertMatch(?UNTRUSTED, Start(#{module => {file, Path, #{key => fun() -> <<"other">> end}}})),
         [?assertMatch(?WASMTIME_BADARG(key), Start(#{module => {file, Path, #{key => Bad}}}))
          || Bad <- [fun() -> none end, fun() -> error(?KEY) end, fun(_) -> ?KEY end]]
     end || Start <- Starts].

%% Modules and refusals leave no memory, and no open file.
t_nothing_is_left(Config) ->
    Path = write(temp(Config, "l"), "memory.cwasm", sealed()),
    Once = fun() ->
        wasmtime_test:in_process(fun() ->
            {ok, Mod} = wasmtime:deserialize_file(Path, #{key => ?KEY}),
            works(Mod),
            ?UNTRUSTED = wasmtime:deserialize_file(Path, #{key => <<"other">>})
        end)
    end,
    Once(),
    Live = objects(),
    {_, Files} = wasmtime_test:resources(),
    [Once() || _ <- lists:seq(1, wasmtime_test:rounds(50, 200, 2000))],
    ?assertEqual(Live, objects()),
    ?assertEqual(Files, element(2, wasmtime_test:resources())).

%% Parked threads end when they like.
objects() -> maps:remove(threads_parked, wasmtime_test:settled()).

%% ---- helpers --------------------------------------------------------------------------------

untrusted(Dir, Bin) ->
    ?assertMatch(?UNTRUSTED, wasmtime:deserialize(Bin, #{key => ?KEY})),
    Path = write(Dir, "x.cwasm", Bin),
    ?assertMatch(?UNTRUSTED, wasmtime:deserialize_file(Path, #{key => ?KEY})).

%% Where the footer of a sealed artifact begins, as its trailer tells.
footer(Bin) ->
    <<Offset:64/little>> = binary:part(Bin, byte_size(Bin) - ?SEAL - ?TRAILER, 8),
    Offset.

split(Bin, At) when At < 0 -> split(Bin, byte_size(Bin) + At);
split(Bin, At) -> {binary:part(Bin, 0, At), binary:part(Bin, At, byte_size(Bin) - At)}.

flip(Bin, At, Bit) ->
    <<Before:At/binary, Byte, After/binary>> = Bin,
    <<Before/binary, (Byte bxor (1 bsl Bit)), After/binary>>.
